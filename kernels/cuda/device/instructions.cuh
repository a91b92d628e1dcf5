// Every instruction that is not plain C++, with its meaning on the host beside it.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/numerics/element.h"

namespace octavo::kernels::cuda {

inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// The value of `x` in lane (own lane XOR lane_mask). All 32 lanes call it.
#ifdef __CUDACC__
template <typename T>
OCTAVO_DEVICE T ShuffleXor(T x, unsigned lane_mask) {
  return __shfl_xor_sync(kAllLanes, x, lane_mask);
}
#else
template <typename T>
OCTAVO_DEVICE T ShuffleXor(T x, unsigned lane_mask, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
  T all[kWarpSize];
  simt::WarpGather(kAllLanes, &x, all, sizeof(T), {file, line});
  return all[simt::Lane() ^ lane_mask];
}
#endif

OCTAVO_DEVICE float WarpMax(float x) {
  for (unsigned lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2) {
    const float other = ShuffleXor(x, lane_mask);
    x = x > other ? x : other;
  }
  return x;
}

OCTAVO_DEVICE float WarpSum(float x) {
  for (unsigned lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2)
    x += ShuffleXor(x, lane_mask);
  return x;
}

OCTAVO_DEVICE uint32_t WarpSum(uint32_t x) {
  for (unsigned lane_mask = kWarpSize / 2; lane_mask > 0; lane_mask /= 2)
    x += ShuffleXor(x, lane_mask);
  return x;
}

// Blocks run one after another on the host and threads of a block on one OS thread, so a plain
// addition is atomic there.
OCTAVO_DEVICE void AtomicAdd(uint64_t* counter, uint64_t amount) {
#ifdef __CUDACC__
  atomicAdd(reinterpret_cast<unsigned long long*>(counter), amount);
#else
  __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
#endif
}

// d[16,8] += a[16,32] * b[32,8]^T-stored over 8-bit numbers, float32 sums (PTX ISA, mma.m16n8k32).
// Lane = 4 * group + t holds, four codes to a 32-bit register, lowest byte first:
//   a[0]: row group, columns 4t..4t+3;  a[1]: row group + 8
//   a[2], a[3]: the same rows, columns 16 + 4t..
//   b[0]: column group, rows 4t..4t+3;  b[1]: rows 16 + 4t..
//   d[0], d[1]: row group, columns 2t, 2t + 1;  d[2], d[3]: row group + 8
#ifdef __CUDACC__
#define OCTAVO_MMA(types)                                          \
  asm("mma.sync.aligned.m16n8k32.row.col.f32." types               \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <Element a_element, Element b_element>
OCTAVO_DEVICE void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (a_element == Element::kE5M2) {
    static_assert(b_element == Element::kE4M3);
    OCTAVO_MMA("e5m2.e4m3");
  } else if constexpr (b_element == Element::kE5M2) {
    OCTAVO_MMA("e4m3.e5m2");
  } else {
    OCTAVO_MMA("e4m3.e4m3");
  }
}
#undef OCTAVO_MMA
#else
template <Element a_element, Element b_element>
OCTAVO_DEVICE void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  struct Operands {
    uint32_t a[4];
    uint32_t b[2];
  };
  const Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Operands all[kWarpSize];
  simt::WarpGather(kAllLanes, &mine, all, sizeof(mine), {file, line});
  const auto value = [](Element element, uint32_t packed, unsigned byte) {
    return CodeToFloat(element, static_cast<uint8_t>(packed >> (8 * byte)));
  };
  const unsigned group = simt::Lane() / 4;
  const unsigned t = simt::Lane() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned k = 0; k < 32; ++k) {
      const unsigned owner = k % 16 / 4;  // the t that holds column k of a and row k of b
      const unsigned high = k / 16;
      d[i] += value(a_element, all[4 * group + owner].a[2 * high + i / 2], k % 4) *
              value(b_element, all[4 * (2 * t + i % 2) + owner].b[high], k % 4);
    }
  }
}
#endif

}  // namespace octavo::kernels::cuda
