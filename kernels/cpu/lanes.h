// The units of this folder's vector code, on every target.
#pragma once

#include <cstdint>

namespace octavo::kernels::cpu {

inline constexpr int64_t kLanes = 16;                // floats in a Floats (vectors_inl.h)
inline constexpr int64_t kPanel = 2 * kLanes;        // columns that small_gemm_inl.h keeps together
inline constexpr int64_t kColumnChunk = 4 * kLanes;  // columns that a thread sums over rows
inline constexpr int64_t kRowChunk = 128;            // rows under one float32 partial sum

}  // namespace octavo::kernels::cpu
