// Matrix products. Row-major; both operands are K-major unless said, so
// c[m,n] = sum_k a[m,k] * b[n,k].
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"

namespace octavo::kernels {

enum class Granularity {
  kTile1x128,     // one scale per row and 128 columns: scale_inv [rows, ceil(columns / 128)]
  kBlock128x128,  // one scale per 128 rows and 128 columns: scale_inv [ceil(rows / 128),
                  // ceil(columns / 128)]
};

// x[r,c] = value(codes[r,c]) * scale_inv[tile or block of (r,c)]. Edge tiles hold fewer elements.
struct Fp8Matrix {
  const uint8_t* codes;    // [rows, columns], E4M3
  const float* scale_inv;  // powers of two in [2^-126, 2^126]
  int64_t rows;
  int64_t columns;
  Granularity granularity;
};

enum class ResultType { kBfloat16, kFloat32 };

// c = a b^T (+ bias) or c += a b^T. Products of E4M3 values are exact in float32 and summed in
// float32, so |c - exact| <= 4 * sqrt(K) * 2^-24 * sum_k |a||b| + 2^-126, plus 2^-8 |c| where c is
// BF16.
struct GemmFp8 {
  static constexpr char kName[] = "GemmFp8";
  Fp8Matrix a;  // [M, K]
  Fp8Matrix b;  // [N, K]; not both operands may have blocks (no cuBLASLt kernel exists for that)
  const bfloat16* bias;  // [N], added in float32 before the result is rounded; null: none
  void* c;               // [M, N] of c_type
  ResultType c_type;
  bool accumulate;  // c += instead of c =; only with kFloat32 and without bias
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
  bool accumulate;  // only with kFloat32 and without bias
};

}  // namespace octavo::kernels
