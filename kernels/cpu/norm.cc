// Formulas: kernels/ops/norm.h and, for heads, fused.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rope_inl.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/vectors_inl.h"
#include "kernels/numerics/tile.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

float InverseRmsOfRow(const RmsNormForward& op, int64_t row) {
  const bfloat16* const x = op.x + row * op.columns;
  Floats squares = Zeros();
  for (int64_t c = 0; c < op.columns; c += kLanes) {
    const Floats value = LoadUpTo(x + c, op.columns - c);
    squares = MulAdd(value, value, squares);
  }
  return 1.0f / std::sqrt(Sum(squares) / static_cast<float>(op.columns) + op.epsilon);
}

void NormalisePart(const RmsNormForward& op, float inverse_rms, const RowPart& part, bfloat16* y) {
  const bfloat16* const x = op.x + part.row * op.columns + part.column;
  const bfloat16* const weight = op.weight + part.column;
  for (int64_t c = 0; c < part.columns; c += kLanes) {
    const int64_t width = part.columns - c;
    const Floats normalised = RoundToBfloat16(LoadUpTo(x + c, width) * Splat(inverse_rms));
    StoreUpTo(y + c, normalised * LoadUpTo(weight + c, width), width);
  }
}

void ForwardRow(const RmsNormForward& op, int64_t row) {
  const float inverse_rms = InverseRmsOfRow(op, row);
  NormalisePart(op, inverse_rms, {row, 0, op.columns}, op.y + row * op.columns);
  if (op.inverse_rms != nullptr) op.inverse_rms[row] = inverse_rms;
}

// All heads of one token; they are normalised before the first is rotated, since a row that is read
// right after it was written waits for itself.
void HeadNormRopeToken(const HeadNormRope& op, int64_t token) {
  const RmsNormForward& norm = op.norm;
  for (int64_t head = 0; head < op.rope.heads; ++head) {
    const int64_t row = token * op.rope.heads + head;
    const float inverse_rms = InverseRmsOfRow(norm, row);
    NormalisePart(norm, inverse_rms, {row, 0, norm.columns}, HeadOf(op.rope, token, head));
    if (norm.inverse_rms != nullptr) norm.inverse_rms[row] = inverse_rms;
  }
  for (int64_t head = 0; head < op.rope.heads; ++head) {
    bfloat16* const y = HeadOf(op.rope, token, head);
    RotateHead(op.rope, token, y, y);
  }
}

// Rows [first, end) of the heads of all tokens, without gaps to `to`.
void RotateRows(const Rope& rope, int64_t first, int64_t end, bfloat16* to) {
  int64_t token = first / rope.heads;
  int64_t head = first % rope.heads;
  for (int64_t row = first; row < end; ++row, to += rope.head_dim) {
    RotateHead(rope, token, HeadOf(rope, token, head), to);
    if (++head < rope.heads) continue;
    head = 0;
    ++token;
  }
}

void BackwardRow(const RmsNormBackward& op, int64_t row, const bfloat16* dy) {
  const int64_t columns = op.columns;
  const bfloat16* const x = op.x + row * columns;
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

// dx of the rows of a band, and the sum over them of what dweight takes, [columns]. Rows come
// first: read from end to end, they are then in the cache for the columns.
void BackwardBand(const RmsNormBackward& op, const Band& band, float* dweight) {
  for (int64_t row = band.first; row < band.end; ++row)
    BackwardRow(op, row, band.dy + (row - band.first) * op.columns);
  for (int64_t start = 0; start < op.columns; start += kColumnChunk) {
    const int64_t end = std::min(start + kColumnChunk, op.columns);
    Floats sums[kColumnChunk / kLanes];
    std::fill(std::begin(sums), std::end(sums), Zeros());
    for (int64_t row = band.first; row < band.end; ++row) {
      const bfloat16* const dy = band.dy + (row - band.first) * op.columns;
      const bfloat16* const x = op.x + row * op.columns;
      const Floats r = Splat(op.inverse_rms[row]);
      for (int64_t c = start, v = 0; c < end; c += kLanes, ++v) {
        const Floats product = LoadUpTo(dy + c, end - c) * LoadUpTo(x + c, end - c);
        sums[v] = MulAdd(product, r, sums[v]);
      }
    }
    for (int64_t c = start, v = 0; c < end; c += kLanes, ++v)
      StoreUpTo(dweight + c, sums[v], end - c);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(InverseRmsOfRow);
HWY_EXPORT(NormalisePart);
HWY_EXPORT(ForwardRow);
HWY_EXPORT(HeadNormRopeToken);
HWY_EXPORT(RotateRows);
HWY_EXPORT(BackwardBand);

void CountUnusableRows(const RmsNormForward& norm) {
  if (norm.nonfinite == nullptr) return;
  const auto unusable = [](float r) { return r == 0 || !std::isfinite(r); };
  *norm.nonfinite += static_cast<uint64_t>(
      std::count_if(norm.inverse_rms, norm.inverse_rms + norm.rows, unusable));
}

// `gradient_of` gives the dy of the rows [first, end); what it puts into the buffer, which is the
// thread's own, lives as long as the band. Bands meet dweight in the order of their rows, once all
// of them are done: a thread that waited for the one before it would do so every 128 rows.
template <typename GradientOf>
void BackwardInBands(const RmsNormBackward& op, const GradientOf& gradient_of) {
  const int64_t bands = CeilDiv(op.rows, kRowChunk);
  std::vector<float> sums(static_cast<size_t>(bands * op.columns));  // a 64th of the bytes of dx
#pragma omp parallel
  {
    std::vector<bfloat16> buffer;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < bands; ++i) {
      const int64_t first = i * kRowChunk;
      const int64_t end = std::min(first + kRowChunk, op.rows);
      const Band band = {.first = first, .end = end, .dy = gradient_of(first, end, &buffer)};
      HWY_DYNAMIC_DISPATCH(BackwardBand)(op, band, sums.data() + i * op.columns);
    }
  }
  for (int64_t i = 0; i < bands; ++i) {
    const float* const of_band = sums.data() + i * op.columns;
    for (int64_t c = 0; c < op.columns; ++c) op.dweight[c] += of_band[c];
  }
}

}  // namespace

void InverseRmsOfRows(const RmsNormForward& norm) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < norm.rows; ++row)
    norm.inverse_rms[row] = HWY_DYNAMIC_DISPATCH(InverseRmsOfRow)(norm, row);
  CountUnusableRows(norm);
}

void Normalise(const RmsNormForward& norm, float inverse_rms, const RowPart& part, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(NormalisePart)(norm, inverse_rms, part, y);
}

absl::Status RunOperation(const RmsNormForward& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < operation.rows; ++row)
    HWY_DYNAMIC_DISPATCH(ForwardRow)(operation, row);
  CountUnusableRows(operation);
  return absl::OkStatus();
}

absl::Status RunOperation(const HeadNormRope& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.rope.tokens; ++token)
    HWY_DYNAMIC_DISPATCH(HeadNormRopeToken)(operation, token);
  CountUnusableRows(operation.norm);
  return absl::OkStatus();
}

absl::Status RunOperation(const RmsNormBackward& operation) {
  BackwardInBands(operation, [&](int64_t first, int64_t, std::vector<bfloat16>*) {
    return operation.dy + first * operation.columns;
  });
  return absl::OkStatus();
}

// Rows that lie without gaps are rotated where they are.
absl::Status RunOperation(const HeadNormRopeBackward& operation) {
  const Rope& rope = operation.rope;
  const int64_t columns = rope.head_dim;
  const bool gaps = PitchOr(rope.pitch, rope.heads * columns) != rope.heads * columns;
  BackwardInBands(operation.norm, [&](int64_t first, int64_t end, std::vector<bfloat16>* buffer) {
    if (gaps) buffer->resize(static_cast<size_t>(kRowChunk * columns));
    bfloat16* const rotated = gaps ? buffer->data() : rope.x + first * columns;
    HWY_DYNAMIC_DISPATCH(RotateRows)(rope, first, end, rotated);
    return static_cast<const bfloat16*>(rotated);
  });
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
