// c[m,n] = or += a[m,k] b[k,n] in float32 for operands that lie in the cache: the products inside
// attention. Each element is summed over k in ascending order, whatever the shape and the target,
// so its bits do not depend on the rows and columns around it.
#if defined(OCTAVO_KERNELS_CPU_SMALL_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_CPU_SMALL_GEMM_INL_H_
#undef OCTAVO_KERNELS_CPU_SMALL_GEMM_INL_H_
#else
#define OCTAVO_KERNELS_CPU_SMALL_GEMM_INL_H_
#endif

#include "kernels/cpu/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {

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

enum class Result { kSet, kAdd };

// A patch of kPatchRows x kPatchVectors Floats keeps its sums in registers: 24 of AVX-512's 32, 12
// of the 16 that AVX2 and SSE4 have. The rest holds a line of b and a broadcast element of a.
inline constexpr int kPatchVectors = kParts == 1 ? 2 : 1;
inline constexpr int kPatchRows = kParts == 1 ? 12 : kParts == 2 ? 6 : 3;

template <Result kResult, int kRows, int kVectors>
HWY_INLINE void MultiplyPatch(const SmallGemm& gemm, int64_t row, int64_t column) {
  Floats sums[kRows][kVectors];
  float* const c = gemm.c + row * gemm.c_pitch + column;
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = kResult == Result::kAdd ? Load(c + i * gemm.c_pitch + v * kLanes) : Zeros();
  }
  const float* a = gemm.a + row * gemm.a_row_stride;
  const float* b = gemm.b + column / kPanel * gemm.b_panel_stride + column % kPanel;
  for (int64_t k = 0; k < gemm.k; ++k, a += gemm.a_k_stride, b += gemm.b_pitch) {
    Floats line[kVectors];
    for (int v = 0; v < kVectors; ++v) line[v] = Load(b + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const Floats element = Splat(a[i * gemm.a_row_stride]);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = MulAdd(line[v], element, sums[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) Store(c + i * gemm.c_pitch + v * kLanes, sums[i][v]);
}

template <Result kResult, int kVectors>
HWY_INLINE void MultiplyColumns(const SmallGemm& gemm, int64_t column) {
  constexpr int kFewRows = kPatchRows / 3;
  int64_t row = 0;
  for (; row + kPatchRows <= gemm.m; row += kPatchRows)
    MultiplyPatch<kResult, kPatchRows, kVectors>(gemm, row, column);
  for (; row + kFewRows <= gemm.m; row += kFewRows)
    MultiplyPatch<kResult, kFewRows, kVectors>(gemm, row, column);
  for (; row < gemm.m; ++row) MultiplyPatch<kResult, 1, kVectors>(gemm, row, column);
}

template <Result kResult>
HWY_INLINE void Multiply(const SmallGemm& gemm) {
  constexpr int64_t kWidth = kPatchVectors * kLanes;
  int64_t column = 0;
  for (; column + kWidth <= gemm.n; column += kWidth)
    MultiplyColumns<kResult, kPatchVectors>(gemm, column);
  if (column < gemm.n) MultiplyColumns<kResult, 1>(gemm, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTAVO_KERNELS_CPU_SMALL_GEMM_INL_H_
