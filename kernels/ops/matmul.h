// Matrix products. Row-major; both operands are K-major unless said, so
// c[m,n] = sum_k a[m,k] * b[n,k]. Rows may lie a pitch apart (pitch.h).
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/ops/pitch.h"
#include "kernels/ops/quantized.h"

namespace octavo::kernels {

enum class ResultType { kBfloat16, kFloat32 };

// c = a b^T (+ bias) (+ residual) or c += a b^T; all of it in float32, and rounded once where c is
// BF16. An E4M3 number has 4 significant bits, an E5M2 number 3: their products have at most 8, are
// exact in float32 and are summed in float32, so with bias and residual among the terms of the sum
// |c - exact| <= 4 * sqrt(K) * 2^-24 * sum_k |a||b| + 2^-126, plus 2^-8 |c| where c is BF16.
struct GemmFp8 {
  static constexpr char kName[] = "GemmFp8";
  // Not both operands may have blocks, and not both may be E5M2: no cuBLASLt kernel exists for
  // that.
  QuantizedTensor a;     // [M, K]
  QuantizedTensor b;     // [N, K]
  const bfloat16* bias;  // [N], added in float32 before the result is rounded; null: none
  void* c;               // [M, N] of c_type
  ResultType c_type;
  bool accumulate;  // c += instead of c =; only with kFloat32, without bias and residual
  int64_t c_pitch = 0;
  const bfloat16* residual = nullptr;  // [M, N], only with a BF16 c, which it may be; null: none
  int64_t residual_pitch = 0;          // c_pitch where the residual is c
};

enum class Layout {
  kNormal,      // stored [rows, K]
  kTransposed,  // stored [K, rows]
};

// The same over BF16 operands, with the same bound.
struct GemmBf16 {
  static constexpr char kName[] = "GemmBf16";
  const bfloat16* a;  // [M, K] or, transposed, [K, M]
  const bfloat16* b;  // [N, K] or, transposed, [K, N]
  Layout a_layout;
  Layout b_layout;
  int64_t m;
  int64_t n;
  int64_t k;
  const bfloat16* bias;  // [N] or null
  void* c;               // [M, N] of c_type
  ResultType c_type;
  bool accumulate;      // only with kFloat32, without bias and residual
  int64_t a_pitch = 0;  // of the rows as they are stored
  int64_t b_pitch = 0;
  int64_t c_pitch = 0;
  const bfloat16* residual = nullptr;  // as in GemmFp8
  int64_t residual_pitch = 0;
};

}  // namespace octavo::kernels
