// What a matrix product must be, in float64, and by how much it may miss (kernels/ops/matmul.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/ops/matmul.h"
#include "tests/support/bound.h"

namespace octavo::testing_support {

// [rows, k], K-major, in float64.
struct Operand {
  std::vector<double> x;
  int64_t rows;
  int64_t k;

  double at(int64_t row, int64_t column) const { return x[static_cast<size_t>(row * k + column)]; }
};

struct Addends {
  std::vector<double> bias;     // [N] or empty
  std::vector<double> initial;  // [M, N], what accumulation starts from, or empty
};

inline BoundShare Share(const Operand& a, const Operand& b, const std::vector<double>& got,
                        kernels::ResultType type, const Addends& addends = {}) {
  BoundShare share;
  for (int64_t m = 0; m < a.rows; ++m) {
    for (int64_t n = 0; n < b.rows; ++n) {
      const auto at = static_cast<size_t>(m * b.rows + n);
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < a.k; ++k) {
        sum += a.at(m, k) * b.at(n, k);
        magnitude += std::fabs(a.at(m, k) * b.at(n, k));
      }
      if (!addends.bias.empty()) {
        sum += addends.bias[static_cast<size_t>(n)];
        magnitude += std::fabs(addends.bias[static_cast<size_t>(n)]);
      }
      if (!addends.initial.empty()) {
        sum += addends.initial[at];
        magnitude += std::fabs(addends.initial[at]);
      }
      // Beyond float32 the right answer is infinity.
      if (std::fabs(sum) > static_cast<double>(std::numeric_limits<float>::max()))
        sum = std::copysign(std::numeric_limits<double>::infinity(), sum);
      double bound = 4 * std::sqrt(static_cast<double>(a.k)) * std::ldexp(magnitude, -24) +
                     std::ldexp(1, -126);
      if (type == kernels::ResultType::kBfloat16) bound += std::ldexp(std::fabs(sum), -8);
      share.Add(got[at], sum, bound);
    }
  }
  return share;
}

}  // namespace octavo::testing_support
