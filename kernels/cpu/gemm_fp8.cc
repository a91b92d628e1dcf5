// GemmFp8 as a product of BF16 numbers, or of float32 where the processor has none. A code is an
// E4M3 or E5M2 number, which has at most 4 significant bits, so code times a power of two is exact
// in BF16 and so is the product of two in float32: the result differs from a scaled FP8 product by
// the order of sums alone, as long as nothing leaves the normal range. Matrix units flush what
// falls below it, so rows whose scales could lead there are computed apart.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "kernels/cpu/conversions.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/quantized_layout.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {
namespace {

struct Range {
  int lowest;
  int highest;
};

// A checked GemmFp8 whose operands lie open.
struct Product {
  Fp8Matrix a;
  Fp8Matrix b;
  const bfloat16* bias;
  void* c;
  ResultType c_type;
  bool accumulate;
  int64_t c_pitch;
  const bfloat16* residual;
  int64_t residual_pitch;
};

const float* ScalesOfRow(const Fp8Matrix& matrix, int64_t row) {
  const int64_t line = matrix.tile == Tile::k1x128 ? row : row / kScaleTile;
  return matrix.scale_inv + line * TileCount(matrix.columns);
}

// Exponents of the powers of two between which the magnitudes of a row's non-zero numbers lie: of
// its scales, the lowest times the format's smallest number, the highest times a power above the
// largest.
Range ExponentsOfRow(const Fp8Matrix& matrix, int64_t row) {
  const float* const scales = ScalesOfRow(matrix, row);
  Range range = {.lowest = ExponentOf(scales[0]), .highest = ExponentOf(scales[0])};
  for (int64_t tile = 1; tile < TileCount(matrix.columns); ++tile) {
    range.lowest = std::min(range.lowest, ExponentOf(scales[tile]));
    range.highest = std::max(range.highest, ExponentOf(scales[tile]));
  }
  return {.lowest = range.lowest + SmallestExponent(matrix.element),
          .highest = range.highest + LargestExponent(matrix.element) + 1};
}

Range ExponentsOf(const Fp8Matrix& matrix) {
  Range range = ExponentsOfRow(matrix, 0);
  for (int64_t row = 1; row < matrix.rows; ++row) {
    const Range of_row = ExponentsOfRow(matrix, row);
    range.lowest = std::min(range.lowest, of_row.lowest);
    range.highest = std::max(range.highest, of_row.highest);
  }
  return range;
}

// Operands must stay in [2^-126, 2^127], products in [2^-126 and 24 bits below them, 2^127 over K];
// K is below 2^40.
bool FitsBfloat16(Range a, Range b) {
  const bool operands =
      std::min(a.lowest, b.lowest) >= -126 && std::max(a.highest, b.highest) <= 127;
  return operands && a.lowest + b.lowest >= -126 + 24 && a.highest + b.highest <= 127 - 40;
}

// Rows that are to be computed apart; empty: none.
using Rows = std::vector<bool>;

// Rows of the matrix that do not fit the exponents of the other operand.
Rows UnfitRows(const Fp8Matrix& matrix, Range other) {
  Rows unfit(static_cast<size_t>(matrix.rows));
  for (int64_t row = 0; row < matrix.rows; ++row)
    unfit[static_cast<size_t>(row)] = !FitsBfloat16(ExponentsOfRow(matrix, row), other);
  return unfit;
}

// Unfit rows become 0. `Number` is what the product takes: bfloat16 or float.
template <typename Number>
void DecodeMatrix(const Fp8Matrix& matrix, const Rows& unfit, Number* out) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < matrix.rows; ++row) {
    Number* const to = out + row * matrix.columns;
    if (!unfit.empty() && unfit[static_cast<size_t>(row)]) {
      std::fill_n(to, matrix.columns, Number{});
    } else {
      DecodeRow(matrix.element, matrix.codes + row * matrix.columns, ScalesOfRow(matrix, row),
                matrix.columns, to);
    }
  }
}

struct UnfitRowsOf {
  const Rows& a;
  const Rows& b;
};
struct OperandScratch {
  Scratch* a;
  Scratch* b;
};

absl::Status Multiply(const Product& op, const UnfitRowsOf& unfit, Matmul* matmul,
                      const OperandScratch& scratch) {
  const int64_t a_count = op.a.rows * op.a.columns;
  const int64_t b_count = op.b.rows * op.b.columns;
  GemmBf16 product = {.a = nullptr,
                      .b = nullptr,
                      .a_layout = Layout::kNormal,
                      .b_layout = Layout::kNormal,
                      .m = op.a.rows,
                      .n = op.b.rows,
                      .k = op.a.columns,
                      .bias = op.bias,
                      .c = op.c,
                      .c_type = op.c_type,
                      .accumulate = op.accumulate,
                      .c_pitch = op.c_pitch,
                      .residual = op.residual,
                      .residual_pitch = op.residual_pitch};
  if (matmul->float32_products()) {
    ASSIGN_OR_RETURN(const WideOperands wide, matmul->GetWideOperands(a_count, b_count));
    DecodeMatrix(op.a, unfit.a, wide.a);
    DecodeMatrix(op.b, unfit.b, wide.b);
    return matmul->RunWide(product, wide);
  }
  ASSIGN_OR_RETURN(bfloat16* const a, scratch.a->Get<bfloat16>(a_count));
  ASSIGN_OR_RETURN(bfloat16* const b, scratch.b->Get<bfloat16>(b_count));
  DecodeMatrix(op.a, unfit.a, a);
  DecodeMatrix(op.b, unfit.b, b);
  product.a = a;
  product.b = b;
  return matmul->Run(product);
}

// Sums of 128 products of codes in float32, which cannot leave its normal range (they lie in
// [2^-32, 2^32 * 128]), scaled and added in float64.
double ExactDot(const Product& op, int64_t row, int64_t column) {
  const uint8_t* const a = op.a.codes + row * op.a.columns;
  const uint8_t* const b = op.b.codes + column * op.b.columns;
  const float* const a_scale = ScalesOfRow(op.a, row);
  const float* const b_scale = ScalesOfRow(op.b, column);
  double sum = 0;
  for (int64_t tile = 0; tile < TileCount(op.a.columns); ++tile) {
    const int64_t end = std::min((tile + 1) * kScaleTile, op.a.columns);
    float partial = 0;
    for (int64_t k = tile * kScaleTile; k < end; ++k)
      partial += CodeToFloat(op.a.element, a[k]) * CodeToFloat(op.b.element, b[k]);
    sum += static_cast<double>(partial) * static_cast<double>(a_scale[tile]) *
           static_cast<double>(b_scale[tile]);
  }
  return sum;
}

void ComputeExactly(const Product& op, int64_t row, int64_t column) {
  double value = ExactDot(op, row, column);
  if (op.bias != nullptr) value += static_cast<double>(ToFloat(op.bias[column]));
  if (op.residual != nullptr) {
    const int64_t pitch = PitchOr(op.residual_pitch, op.b.rows);
    value += static_cast<double>(ToFloat(op.residual[row * pitch + column]));
  }
  const int64_t at = row * PitchOr(op.c_pitch, op.b.rows) + column;
  if (op.c_type == ResultType::kBfloat16) {
    static_cast<bfloat16*>(op.c)[at] = ToBfloat16(static_cast<float>(value));
  } else {
    float* const c = static_cast<float*>(op.c) + at;
    *c = static_cast<float>(op.accumulate ? static_cast<double>(*c) + value : value);
  }
}

// The elements of c that lie in an unfit row of a or of b.
void ComputeUnfit(const Product& op, const Rows& unfit_a, const Rows& unfit_b) {
#pragma omp parallel for schedule(static, 1)
  for (int64_t row = 0; row < op.a.rows; ++row) {
    const bool whole_row = !unfit_a.empty() && unfit_a[static_cast<size_t>(row)];
    for (int64_t column = 0; column < op.b.rows; ++column) {
      if (whole_row || (!unfit_b.empty() && unfit_b[static_cast<size_t>(column)]))
        ComputeExactly(op, row, column);
    }
  }
}

// The residual [M, N] without gaps.
std::vector<bfloat16> CopyOfResidual(const Product& op) {
  const int64_t columns = op.b.rows;
  std::vector<bfloat16> copy(static_cast<size_t>(op.a.rows * columns));
  for (int64_t row = 0; row < op.a.rows; ++row) {
    std::copy_n(op.residual + row * PitchOr(op.residual_pitch, columns), columns,
                copy.begin() + row * columns);
  }
  return copy;
}

}  // namespace

absl::Status RunGemmFp8(const GemmFp8& operation, Matmul* matmul, Scratch* a_scratch,
                        Scratch* b_scratch) {
  Product product = {.a = MatrixOf(operation.a),
                     .b = MatrixOf(operation.b),
                     .bias = operation.bias,
                     .c = operation.c,
                     .c_type = operation.c_type,
                     .accumulate = operation.accumulate,
                     .c_pitch = operation.c_pitch,
                     .residual = operation.residual,
                     .residual_pitch = operation.residual_pitch};
  const Fp8Matrix& a = product.a;
  const Fp8Matrix& b = product.b;
  const Range a_range = ExponentsOf(a);
  const Range b_range = ExponentsOf(b);
  Rows unfit_a;
  Rows unfit_b;
  if (!FitsBfloat16(a_range, b_range)) {  // the rows of one operand suffice: take the fewer
    unfit_a = UnfitRows(a, b_range);
    unfit_b = UnfitRows(b, a_range);
    const auto of_a = std::count(unfit_a.begin(), unfit_a.end(), true) * b.rows;
    const auto of_b = std::count(unfit_b.begin(), unfit_b.end(), true) * a.rows;
    (of_a <= of_b ? unfit_b : unfit_a).clear();
  }
  const bool any_unfit = !unfit_a.empty() || !unfit_b.empty();
  std::vector<bfloat16> residual;  // where unfit rows need what the product overwrites
  if (any_unfit && product.residual != nullptr && product.residual == product.c)
    residual = CopyOfResidual(product);
  RETURN_IF_ERROR(Multiply(product, {unfit_a, unfit_b}, matmul, {a_scratch, b_scratch}));
  if (!residual.empty()) {
    product.residual = residual.data();
    product.residual_pitch = 0;
  }
  if (any_unfit) ComputeUnfit(product, unfit_a, unfit_b);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
