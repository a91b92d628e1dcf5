// Formulas: kernels/ops/elementwise.h.
#include <algorithm>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kChunk = 8192;      // elements a thread takes at a time; fits its L1 cache
constexpr int64_t kSumChunk = 65536;  // elements under one partial sum
constexpr int64_t kColumnChunk = 64;  // columns a thread sums
constexpr int64_t kRowChunk = 128;    // rows under one float32 partial sum

template <typename Body, typename Operation>
void ForChunks(const Operation& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.count; start += kChunk)
    Vectorized<Body>(&operation, start, std::min(start + kChunk, operation.count));
}

struct AddChunk {
  OCTAVO_INLINE static void Run(const Add* op, int64_t start, int64_t end) {
    int64_t i = start;
    for (; i + kLanes <= end; i += kLanes) Store(op->y + i, Load(op->a + i) + Load(op->b + i));
    if (i == end) return;
    const int64_t rest = end - i;
    StorePart(op->y + i, LoadPart(op->a + i, rest) + LoadPart(op->b + i, rest), rest);
  }
};

struct CastChunk {
  OCTAVO_INLINE static void Run(const CastToBfloat16* op, int64_t start, int64_t end) {
    int64_t i = start;
    for (; i + kLanes <= end; i += kLanes) Store(op->y + i, Load(op->x + i));
    if (i < end) StorePart(op->y + i, LoadPart(op->x + i, end - i), end - i);
  }
};

struct SwigluForwardChunk {
  OCTAVO_INLINE static Floats Gated(Floats gate, Floats up) {
    return RoundToBfloat16(gate * Sigmoid(gate)) * up;
  }
  OCTAVO_INLINE static void Run(const SwigluForward* op, int64_t start, int64_t end) {
    int64_t i = start;
    for (; i + kLanes <= end; i += kLanes)
      Store(op->y + i, Gated(Load(op->gate + i), Load(op->up + i)));
    if (i == end) return;
    const int64_t rest = end - i;
    StorePart(op->y + i, Gated(LoadPart(op->gate + i, rest), LoadPart(op->up + i, rest)), rest);
  }
};

struct SwigluBackwardChunk {
  struct Gradients {
    Floats gate;
    Floats up;
  };
  OCTAVO_INLINE static Gradients Differentiate(Floats dy, Floats gate, Floats up) {
    const Floats sigmoid = Sigmoid(gate);
    const Floats silu = gate * sigmoid;
    return {.gate = dy * up * (sigmoid + silu * (1.0f - sigmoid)),
            .up = dy * RoundToBfloat16(silu)};
  }
  OCTAVO_INLINE static void Run(const SwigluBackward* op, int64_t start, int64_t end) {
    int64_t i = start;
    for (; i + kLanes <= end; i += kLanes) {
      const Gradients d = Differentiate(Load(op->dy + i), Load(op->gate + i), Load(op->up + i));
      Store(op->dgate + i, d.gate);
      Store(op->dup + i, d.up);
    }
    if (i == end) return;
    const int64_t rest = end - i;
    const Gradients d = Differentiate(LoadPart(op->dy + i, rest), LoadPart(op->gate + i, rest),
                                      LoadPart(op->up + i, rest));
    StorePart(op->dgate + i, d.gate, rest);
    StorePart(op->dup + i, d.up, rest);
  }
};

// Columns [start, end) of all rows, kRowChunk rows summed before they meet the result.
struct ColumnSumChunk {
  OCTAVO_INLINE static void Run(const ColumnSum* op, int64_t start, int64_t end) {
    for (int64_t row0 = 0; row0 < op->rows; row0 += kRowChunk) {
      const int64_t row_end = std::min(row0 + kRowChunk, op->rows);
      Floats sums[kColumnChunk / kLanes] = {};
      for (int64_t row = row0; row < row_end; ++row) {
        const bfloat16* const x = op->x + row * op->columns;
        for (int64_t column = start, v = 0; column < end; column += kLanes, ++v) {
          const int64_t width = end - column;
          sums[v] += width >= kLanes ? Load(x + column) : LoadPart(x + column, width);
        }
      }
      for (int64_t column = start, v = 0; column < end; column += kLanes, ++v) {
        float lanes[kLanes];
        Store(lanes, sums[v]);
        for (int64_t i = 0; i < std::min(kLanes, end - column); ++i)
          op->out[column + i] += lanes[i];
      }
    }
  }
};

// Sixteen float64 sums, added in lane order.
struct SumOfSquaresChunk {
  OCTAVO_INLINE static void Run(const float* x, int64_t count, double* result) {
    double sums[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const double value = static_cast<double>(x[i + lane]);
        sums[lane] += value * value;
      }
    }
    for (int64_t lane = 0; i < count; ++i, ++lane) {
      const double value = static_cast<double>(x[i]);
      sums[lane] += value * value;
    }
    double total = 0;
    for (const double sum : sums) total += sum;
    *result = total;
  }
};

}  // namespace

absl::Status RunOperation(const Add& operation) {
  ForChunks<AddChunk>(operation);
  return absl::OkStatus();
}

absl::Status RunOperation(const CastToBfloat16& operation) {
  ForChunks<CastChunk>(operation);
  return absl::OkStatus();
}

absl::Status RunOperation(const SwigluForward& operation) {
  ForChunks<SwigluForwardChunk>(operation);
  return absl::OkStatus();
}

absl::Status RunOperation(const SwigluBackward& operation) {
  ForChunks<SwigluBackwardChunk>(operation);
  return absl::OkStatus();
}

absl::Status RunOperation(const ColumnSum& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.columns; start += kColumnChunk) {
    Vectorized<ColumnSumChunk>(&operation, start,
                               std::min(start + kColumnChunk, operation.columns));
  }
  return absl::OkStatus();
}

absl::Status RunOperation(const SumOfSquares& operation) {
  const int64_t chunks = CeilDiv(operation.count, kSumChunk);
  std::vector<double> partial(static_cast<size_t>(chunks));
#pragma omp parallel for schedule(static)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t start = chunk * kSumChunk;
    Vectorized<SumOfSquaresChunk>(operation.x + start, std::min(kSumChunk, operation.count - start),
                                  &partial[static_cast<size_t>(chunk)]);
  }
  for (const double sum : partial) *operation.result += sum;
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
