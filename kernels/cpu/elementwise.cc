// Formulas: kernels/ops/elementwise.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/vectors_inl.h"
#include "kernels/numerics/tile.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

void AddChunk(const Add& op, int64_t start, int64_t end) {
  for (int64_t i = start; i < end; i += kLanes) {
    const int64_t rest = end - i;
    StoreUpTo(op.y + i, LoadUpTo(op.a + i, rest) + LoadUpTo(op.b + i, rest), rest);
  }
}

void CastChunk(const CastToBfloat16& op, int64_t start, int64_t end) {
  for (int64_t i = start; i < end; i += kLanes)
    StoreUpTo(op.y + i, LoadUpTo(op.x + i, end - i), end - i);
}

void SwigluPart(const SwigluForward& op, const RowPart& part, bfloat16* y) {
  const int64_t start = part.row * op.columns + part.column;
  for (int64_t i = 0; i < part.columns; i += kLanes) {
    const int64_t rest = part.columns - i;
    const Floats gate = LoadUpTo(op.gate + start + i, rest);
    const Floats silu = RoundToBfloat16(gate * Sigmoid(gate));
    StoreUpTo(y + i, silu * LoadUpTo(op.up + start + i, rest), rest);
  }
}

void SwigluGradientsPart(const SwigluBackward& op, const RowPart& part, bfloat16* dgate,
                         bfloat16* dup) {
  const int64_t start = part.row * op.columns + part.column;
  const Floats one = Splat(1.0f);
  for (int64_t i = 0; i < part.columns; i += kLanes) {
    const int64_t rest = part.columns - i;
    const Floats dy = LoadUpTo(op.dy + start + i, rest);
    const Floats gate = LoadUpTo(op.gate + start + i, rest);
    const Floats up = LoadUpTo(op.up + start + i, rest);
    const Floats sigmoid = Sigmoid(gate);
    const Floats silu = gate * sigmoid;
    StoreUpTo(dgate + i, dy * up * MulAdd(silu, one - sigmoid, sigmoid), rest);
    StoreUpTo(dup + i, dy * RoundToBfloat16(silu), rest);
  }
}

// Columns [start, end) of all rows, kRowChunk rows summed before they meet the result.
void ColumnSumChunk(const ColumnSum& op, int64_t start, int64_t end) {
  for (int64_t row0 = 0; row0 < op.rows; row0 += kRowChunk) {
    const int64_t row_end = std::min(row0 + kRowChunk, op.rows);
    Floats sums[kColumnChunk / kLanes];
    std::fill(std::begin(sums), std::end(sums), Zeros());
    for (int64_t row = row0; row < row_end; ++row) {
      const bfloat16* const x = op.x + row * op.columns;
      for (int64_t c = start, v = 0; c < end; c += kLanes, ++v)
        sums[v] = sums[v] + LoadUpTo(x + c, end - c);
    }
    for (int64_t c = start, v = 0; c < end; c += kLanes, ++v)
      StoreUpTo(op.out + c, LoadUpTo(op.out + c, end - c) + sums[v], end - c);
  }
}

// Sixteen float64 sums, added in lane order.
double SumOfSquaresChunk(const float* x, int64_t count) {
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
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(AddChunk);
HWY_EXPORT(CastChunk);
HWY_EXPORT(SwigluPart);
HWY_EXPORT(SwigluGradientsPart);
HWY_EXPORT(ColumnSumChunk);
HWY_EXPORT(SumOfSquaresChunk);

constexpr int64_t kChunk = 8192;      // elements a thread takes at a time; fits its L1 cache
constexpr int64_t kSumChunk = 65536;  // elements under one partial sum

template <typename Operation>
void ForChunks(const Operation& operation, void (*body)(const Operation&, int64_t, int64_t)) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.count; start += kChunk)
    body(operation, start, std::min(start + kChunk, operation.count));
}

uint64_t CountNonfinite(const bfloat16* x, int64_t count) {
  uint64_t found = 0;
#pragma omp parallel for schedule(static) reduction(+ : found)
  for (int64_t start = 0; start < count; start += kChunk) {
    uint32_t of_chunk = 0;
    const int64_t end = std::min(start + kChunk, count);
    for (int64_t i = start; i < end; ++i) of_chunk += (x[i].bits & 0x7FFF) >= 0x7F80 ? 1 : 0;
    found += of_chunk;
  }
  return found;
}

}  // namespace

void Swiglu(const SwigluForward& swiglu, const RowPart& part, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(SwigluPart)(swiglu, part, y);
}

void SwigluGradients(const SwigluBackward& swiglu, const RowPart& part, bfloat16* dgate,
                     bfloat16* dup) {
  HWY_DYNAMIC_DISPATCH(SwigluGradientsPart)(swiglu, part, dgate, dup);
}

absl::Status RunOperation(const Add& operation) {
  ForChunks(operation, HWY_DYNAMIC_DISPATCH(AddChunk));
  return absl::OkStatus();
}

absl::Status RunOperation(const CastToBfloat16& operation) {
  ForChunks(operation, HWY_DYNAMIC_DISPATCH(CastChunk));
  if (operation.nonfinite != nullptr)
    *operation.nonfinite += CountNonfinite(operation.y, operation.count);
  return absl::OkStatus();
}

absl::Status RunOperation(const SwigluForward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row)
    Swiglu(operation, {row, 0, operation.columns}, operation.y + row * operation.columns);
  return absl::OkStatus();
}

absl::Status RunOperation(const SwigluBackward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row) {
    const int64_t at = row * operation.columns;
    SwigluGradients(operation, {row, 0, operation.columns}, operation.dgate + at,
                    operation.dup + at);
  }
  return absl::OkStatus();
}

absl::Status RunOperation(const ColumnSum& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.columns; start += kColumnChunk) {
    HWY_DYNAMIC_DISPATCH(ColumnSumChunk)
    (operation, start, std::min(start + kColumnChunk, operation.columns));
  }
  return absl::OkStatus();
}

absl::Status RunOperation(const SumOfSquares& operation) {
  const int64_t chunks = CeilDiv(operation.count, kSumChunk);
  std::vector<double> partial(static_cast<size_t>(chunks));
#pragma omp parallel for schedule(static)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t start = chunk * kSumChunk;
    partial[static_cast<size_t>(chunk)] = HWY_DYNAMIC_DISPATCH(SumOfSquaresChunk)(
        operation.x + start, std::min(kSumChunk, operation.count - start));
  }
  for (const double sum : partial) *operation.result += sum;
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
