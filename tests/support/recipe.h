// The operands of the FP8 recipe in float64, written from its formulas: what a number becomes when
// it is stored in BF16 or quantised to 8 bits. Knows nothing of kernels.
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

struct Format {
  int significant_bits;
  int lowest_exponent;  // of normal numbers
  double largest;
};
inline constexpr Format kE4m3Format = {4, -6, 448};
inline constexpr Format kE5m2Format = {3, -14, 57344};

// The matrix [rows, columns] as its codes and scales stand for it, in tiles of `tile_rows` by
// `tile_columns`: x 2^e rounded to the format, with the largest e that keeps the tile within it.
inline std::vector<double> Quantized(const std::vector<double>& matrix, int64_t columns,
                                     int64_t tile_rows, int64_t tile_columns,
                                     const Format& format = kE4m3Format) {
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
      const double scale = top == 0 ? 1 : std::exp2(std::floor(std::log2(format.largest / top)));
      each(row, column, [&](size_t i) {
        result[i] =
            RoundTo(matrix[i] * scale, format.significant_bits, format.lowest_exponent) / scale;
      });
    }
  }
  return result;
}

}  // namespace octavo::testing_support
