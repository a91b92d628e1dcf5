// Formulas: kernels/ops/norm.h.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kColumnChunk = 64;  // columns of dweight a thread sums
constexpr int64_t kRowChunk = 128;    // rows under one float32 partial sum

OCTAVO_INLINE Floats LoadUpTo(const bfloat16* from, int64_t count) {
  return count >= kLanes ? Load(from) : LoadPart(from, count);
}

OCTAVO_INLINE void StoreUpTo(bfloat16* to, Floats x, int64_t count) {
  if (count >= kLanes) {
    Store(to, x);
  } else {
    StorePart(to, x, count);
  }
}

struct ForwardRow {
  OCTAVO_INLINE static void Run(const RmsNormForward* op, int64_t row) {
    const int64_t columns = op->columns;
    const bfloat16* const x = op->x + row * columns;
    bfloat16* const y = op->y + row * columns;
    Floats squares = {};
    for (int64_t c = 0; c < columns; c += kLanes) {
      const Floats value = LoadUpTo(x + c, columns - c);
      squares += value * value;
    }
    const float inverse_rms =
        1.0f / std::sqrt(Sum(squares) / static_cast<float>(columns) + op->epsilon);
    for (int64_t c = 0; c < columns; c += kLanes) {
      const Floats normalised = RoundToBfloat16(LoadUpTo(x + c, columns - c) * inverse_rms);
      StoreUpTo(y + c, normalised * LoadUpTo(op->weight + c, columns - c), columns - c);
    }
    if (op->inverse_rms != nullptr) op->inverse_rms[row] = inverse_rms;
  }
};

struct BackwardRow {
  OCTAVO_INLINE static void Run(const RmsNormBackward* op, int64_t row) {
    const int64_t columns = op->columns;
    const bfloat16* const x = op->x + row * columns;
    const bfloat16* const dy = op->dy + row * columns;
    const bfloat16* const add = op->dx_add == nullptr ? nullptr : op->dx_add + row * columns;
    bfloat16* const dx = op->dx + row * columns;
    Floats products = {};
    for (int64_t c = 0; c < columns; c += kLanes) {
      const int64_t width = columns - c;
      products +=
          LoadUpTo(dy + c, width) * LoadUpTo(op->weight + c, width) * LoadUpTo(x + c, width);
    }
    const float r = op->inverse_rms[row];
    const float pull = r * r * (Sum(products) / static_cast<float>(columns));
    for (int64_t c = 0; c < columns; c += kLanes) {
      const int64_t width = columns - c;
      const Floats g = LoadUpTo(dy + c, width) * LoadUpTo(op->weight + c, width);
      Floats result = (g - LoadUpTo(x + c, width) * pull) * r;
      if (add != nullptr) result += LoadUpTo(add + c, width);
      StoreUpTo(dx + c, result, width);
    }
  }
};

// dweight of columns [start, end), kRowChunk rows summed before they meet it.
struct WeightColumns {
  OCTAVO_INLINE static void Run(const RmsNormBackward* op, int64_t start, int64_t end) {
    for (int64_t row0 = 0; row0 < op->rows; row0 += kRowChunk) {
      const int64_t row_end = std::min(row0 + kRowChunk, op->rows);
      Floats sums[kColumnChunk / kLanes] = {};
      for (int64_t row = row0; row < row_end; ++row) {
        const int64_t at = row * op->columns;
        const float r = op->inverse_rms[row];
        for (int64_t c = start, v = 0; c < end; c += kLanes, ++v)
          sums[v] += LoadUpTo(op->dy + at + c, end - c) * LoadUpTo(op->x + at + c, end - c) * r;
      }
      for (int64_t c = start, v = 0; c < end; c += kLanes, ++v) {
        float lanes[kLanes];
        Store(lanes, sums[v]);
        for (int64_t i = 0; i < std::min(kLanes, end - c); ++i) op->dweight[c + i] += lanes[i];
      }
    }
  }
};

}  // namespace

absl::Status RunOperation(const RmsNormForward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row) Vectorized<ForwardRow>(&operation, row);
  return absl::OkStatus();
}

absl::Status RunOperation(const RmsNormBackward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.columns; start += kColumnChunk) {
    Vectorized<WeightColumns>(&operation, start, std::min(start + kColumnChunk, operation.columns));
  }
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row) Vectorized<BackwardRow>(&operation, row);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
