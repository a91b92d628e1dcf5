// Operations that touch each element once, and sums over them.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"

namespace octavo::kernels {

// y = a + b in float32, rounded to BF16.
struct Add {
  static constexpr char kName[] = "Add";
  const bfloat16* a;
  const bfloat16* b;
  bfloat16* y;  // may be a or b
  int64_t count;
};

// A float32 beyond BF16's largest number becomes Inf.
struct CastToBfloat16 {
  static constexpr char kName[] = "CastToBfloat16";
  const float* x;
  bfloat16* y;
  int64_t count;
  uint64_t* nonfinite = nullptr;  // [1], the number of NaN and Inf in y is added; null: not counted
};

// SwiGLU: s = gate * sigmoid(gate), rounded to BF16; y = s * up, rounded to BF16.
struct SwigluForward {
  static constexpr char kName[] = "SwigluForward";
  const bfloat16* gate;  // [rows, columns]
  const bfloat16* up;    // [rows, columns]
  bfloat16* y;           // [rows, columns]
  int64_t rows;
  int64_t columns;
};

//   dup = dy * s;  dgate = dy * up * (sigmoid + gate * sigmoid * (1 - sigmoid))
// In float32, each rounded once.
struct SwigluBackward {
  static constexpr char kName[] = "SwigluBackward";
  const bfloat16* dy;  // this and the following: [rows, columns]
  const bfloat16* gate;
  const bfloat16* up;
  bfloat16* dgate;  // may be gate
  bfloat16* dup;    // may be up
  int64_t rows;
  int64_t columns;
};

// out[c] += sum_r x[r,c], in float32, rows in a fixed order: the bias gradient.
struct ColumnSum {
  static constexpr char kName[] = "ColumnSum";
  const bfloat16* x;  // [rows, columns]
  float* out;         // [columns]
  int64_t rows;
  int64_t columns;
};

// result[0] += sum x^2 in float64 in a fixed order. NaN and Inf in x make it non-finite.
struct SumOfSquares {
  static constexpr char kName[] = "SumOfSquares";
  const float* x;
  int64_t count;
  double* result;  // [1]
};

}  // namespace octavo::kernels
