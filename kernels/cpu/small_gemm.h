// c[m,n] += a[m,k] b[k,n] in float32 for operands that lie in the cache: the products inside
// attention. Sums run over k in ascending order whatever the shape, so a result does not depend on
// its neighbours.
#pragma once

#include <algorithm>

#include "kernels/cpu/simd.h"

namespace octavo::kernels::cpu {

inline constexpr int64_t kPanel = 2 * kLanes;  // columns of b that are used together

// Element (i, k) of `a` is a[i * a_row_stride + k * a_k_stride], so that a transposed operand needs
// no copy. Element (k, j) of `b` is b[j / kPanel * b_panel_stride + k * b_pitch + j % kPanel]: with
// b_panel_stride = kPanel plain rows, else panels of kPanel columns that lie together, since rows a
// power of two apart would fall into the same few cache lines. n is a multiple of kLanes.
struct SmallGemm {
  const float* a;
  int64_t a_row_stride;
  int64_t a_k_stride;
  const float* b;
  int64_t b_pitch;
  int64_t b_panel_stride;
  float* c;
  int64_t c_pitch;
  int64_t m;
  int64_t n;
  int64_t k;
};

// kRows x (kVectors * kLanes) of c in registers.
template <int kRows, int kVectors>
OCTAVO_INLINE void MultiplyPatch(const SmallGemm& gemm, int64_t row, int64_t column) {
  Floats sums[kRows][kVectors];
  float* const c = gemm.c + row * gemm.c_pitch + column;
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) sums[i][v] = Load(c + i * gemm.c_pitch + v * kLanes);
  const float* a = gemm.a + row * gemm.a_row_stride;
  const float* b = gemm.b + column / kPanel * gemm.b_panel_stride;
  for (int64_t k = 0; k < gemm.k; ++k, a += gemm.a_k_stride, b += gemm.b_pitch) {
    Floats line[kVectors];
    for (int v = 0; v < kVectors; ++v) line[v] = Load(b + v * kLanes);
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) sums[i][v] += line[v] * a[i * gemm.a_row_stride];
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) Store(c + i * gemm.c_pitch + v * kLanes, sums[i][v]);
}

template <int kVectors>
OCTAVO_INLINE void MultiplyColumns(const SmallGemm& gemm, int64_t column) {
  constexpr int kRows = 8;
  int64_t row = 0;
  for (; row + kRows <= gemm.m; row += kRows) MultiplyPatch<kRows, kVectors>(gemm, row, column);
  for (; row < gemm.m; ++row) MultiplyPatch<1, kVectors>(gemm, row, column);
}

OCTAVO_INLINE void Multiply(const SmallGemm& gemm) {
  int64_t column = 0;
  for (; column + kPanel <= gemm.n; column += kPanel) MultiplyColumns<2>(gemm, column);
  if (column < gemm.n) MultiplyColumns<1>(gemm, column);
}

}  // namespace octavo::kernels::cpu
