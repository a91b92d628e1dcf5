// Formulas: kernels/ops/norm.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kRowChunk = 128;  // rows under one float32 partial sum

void ForwardRow(const RmsNormForward& op, int64_t row) {
  const int64_t columns = op.columns;
  const bfloat16* const x = op.x + row * columns;
  bfloat16* const y = op.y + row * columns;
  Floats squares = Zeros();
  for (int64_t c = 0; c < columns; c += kLanes) {
    const Floats value = LoadUpTo(x + c, columns - c);
    squares = MulAdd(value, value, squares);
  }
  const float inverse_rms =
      1.0f / std::sqrt(Sum(squares) / static_cast<float>(columns) + op.epsilon);
  for (int64_t c = 0; c < columns; c += kLanes) {
    const int64_t width = columns - c;
    const Floats normalised = RoundToBfloat16(LoadUpTo(x + c, width) * Splat(inverse_rms));
    StoreUpTo(y + c, normalised * LoadUpTo(op.weight + c, width), width);
  }
  if (op.inverse_rms != nullptr) op.inverse_rms[row] = inverse_rms;
}

void BackwardRow(const RmsNormBackward& op, int64_t row) {
  const int64_t columns = op.columns;
  const bfloat16* const x = op.x + row * columns;
  const bfloat16* const dy = op.dy + row * columns;
  const bfloat16* const add = op.dx_add == nullptr ? nullptr : op.dx_add + row * columns;
  bfloat16* const dx = op.dx + row * columns;
  Floats products = Zeros();
  for (int64_t c = 0; c < columns; c += kLanes) {
    const int64_t width = columns - c;
    const Floats g = LoadUpTo(dy + c, width) * LoadUpTo(op.weight + c, width);
    products = MulAdd(g, LoadUpTo(x + c, width), products);
  }
  const float r = op.inverse_rms[row];
  const float pull = r * r * (Sum(products) / static_cast<float>(columns));
  for (int64_t c = 0; c < columns; c += kLanes) {
    const int64_t width = columns - c;
    const Floats g = LoadUpTo(dy + c, width) * LoadUpTo(op.weight + c, width);
    Floats result = NegMulAdd(LoadUpTo(x + c, width), Splat(pull), g) * Splat(r);
    if (add != nullptr) result = result + LoadUpTo(add + c, width);
    StoreUpTo(dx + c, result, width);
  }
}

// dweight of columns [start, end), kRowChunk rows summed before they meet it.
void WeightColumns(const RmsNormBackward& op, int64_t start, int64_t end) {
  for (int64_t row0 = 0; row0 < op.rows; row0 += kRowChunk) {
    const int64_t row_end = std::min(row0 + kRowChunk, op.rows);
    Floats sums[kColumnChunk / kLanes];
    std::fill(std::begin(sums), std::end(sums), Zeros());
    for (int64_t row = row0; row < row_end; ++row) {
      const int64_t at = row * op.columns;
      const Floats r = Splat(op.inverse_rms[row]);
      for (int64_t c = start, v = 0; c < end; c += kLanes, ++v) {
        const Floats product = LoadUpTo(op.dy + at + c, end - c) * LoadUpTo(op.x + at + c, end - c);
        sums[v] = MulAdd(product, r, sums[v]);
      }
    }
    for (int64_t c = start, v = 0; c < end; c += kLanes, ++v)
      StoreUpTo(op.dweight + c, LoadUpTo(op.dweight + c, end - c) + sums[v], end - c);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(ForwardRow);
HWY_EXPORT(BackwardRow);
HWY_EXPORT(WeightColumns);

}  // namespace

absl::Status RunOperation(const RmsNormForward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row)
    HWY_DYNAMIC_DISPATCH(ForwardRow)(operation, row);
  if (operation.nonfinite != nullptr) {
    const auto unusable = [](float r) { return r == 0 || !std::isfinite(r); };
    *operation.nonfinite += static_cast<uint64_t>(
        std::count_if(operation.inverse_rms, operation.inverse_rms + operation.rows, unusable));
  }
  return absl::OkStatus();
}

absl::Status RunOperation(const RmsNormBackward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.columns; start += kColumnChunk) {
    HWY_DYNAMIC_DISPATCH(WeightColumns)
    (operation, start, std::min(start + kColumnChunk, operation.columns));
  }
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row)
    HWY_DYNAMIC_DISPATCH(BackwardRow)(operation, row);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
