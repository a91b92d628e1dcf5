// RMSNorm (arXiv:1910.07467):
//   r = rsqrt(mean_c(x[c]^2) + epsilon);  y[c] = bf16(x[c] * r) * weight[c]
// Sums in float32; the normalised value is rounded to BF16 before the weight, as in the reference
// code. Relative error of y against float64: two BF16 roundings (2^-8 each) + columns * 2^-24.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"

namespace octavo::kernels {

struct RmsNormForward {
  static constexpr char kName[] = "RmsNormForward";
  const bfloat16* x;       // [rows, columns]
  const bfloat16* weight;  // [columns]
  bfloat16* y;             // [rows, columns]; may be x
  float* inverse_rms;      // [rows], kept for backward; null in evaluation
  int64_t rows;
  int64_t columns;
  float epsilon;
  // [1], the number of rows whose r is 0 or not finite is added: their sum of squares has left
  // float32 (|x| above 1.8e19), or holds a NaN. Null: not counted; else inverse_rms is needed.
  uint64_t* nonfinite = nullptr;
};

//   g = dy * weight;  dx = r * (g - x * r^2 * mean_c(g * x))  (+ dx_add)
//   dweight[c] += sum_r dy * x * r
struct RmsNormBackward {
  static constexpr char kName[] = "RmsNormBackward";
  const bfloat16* dy;        // [rows, columns]
  const bfloat16* x;         // [rows, columns]
  const bfloat16* weight;    // [columns]
  const float* inverse_rms;  // [rows]
  const bfloat16* dx_add;    // [rows, columns], the residual branch's gradient, added in float32;
                             // null: none; may be dx
  bfloat16* dx;              // [rows, columns]
  float* dweight;            // [columns], added to, in a fixed order
  int64_t rows;
  int64_t columns;
};

}  // namespace octavo::kernels
