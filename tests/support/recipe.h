// The operands of the FP8 recipe in float64, written from its formulas: what a number becomes when
// it is stored in BF16 or quantised to E4M3. Knows nothing of kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace octavo::testing_support {

// Nearest of the numbers with `bits` significant bits and exponents from `lowest` on, ties to even.
inline double RoundTo(double x, int bits, int lowest) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), lowest);
  const double step = std::ldexp(1, exponent - bits + 1);
  return std::nearbyint(x / step) * step;
}

inline void StoreInBfloat16(std::vector<double>* values) {
  for (double& value : *values) value = RoundTo(value, 8, -126);
}

// The matrix [rows, columns] as its E4M3 codes and scales stand for it, in tiles of `tile_rows` by
// `tile_columns`: x 2^e rounded to E4M3, with the largest e that keeps the tile within 448.
inline std::vector<double> Quantized(const std::vector<double>& matrix, int64_t columns,
                                     int64_t tile_rows, int64_t tile_columns) {
  const int64_t rows = static_cast<int64_t>(matrix.size()) / columns;
  std::vector<double> result(matrix.size());
  const auto each = [&](int64_t row, int64_t column, const auto& visit) {
    for (int64_t r = row; r < std::min(row + tile_rows, rows); ++r) {
      for (int64_t c = column; c < std::min(column + tile_columns, columns); ++c) {
        visit(static_cast<size_t>(r * columns + c));
      }
    }
  };
  for (int64_t row = 0; row < rows; row += tile_rows) {
    for (int64_t column = 0; column < columns; column += tile_columns) {
      double top = 0;
      each(row, column, [&](size_t i) { top = std::max(top, std::fabs(matrix[i])); });
      const double scale = top == 0 ? 1 : std::exp2(std::floor(std::log2(448 / top)));
      each(row, column, [&](size_t i) { result[i] = RoundTo(matrix[i] * scale, 4, -6) / scale; });
    }
  }
  return result;
}

}  // namespace octavo::testing_support
