// The power-of-two scale of a tile (rule: kernels/ops/quantize.h), in integers: no logarithm or
// division whose last bit could differ between devices.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

inline constexpr int kMaxScaleExponent = 126;  // 2^e and 2^-e are normal float32 numbers

// 2^exponent, exponent in [-126, 127].
OCTAVO_HOST_DEVICE inline float PowerOfTwo(int exponent) {
  FloatBits wide;
  wide.bits = static_cast<uint32_t>(exponent + 127) << 23;
  return wide.value;
}

// The exponent of a float32 that is a positive normal power of two.
OCTAVO_HOST_DEVICE inline int ExponentOf(float power) {
  FloatBits wide;
  wide.value = power;
  return static_cast<int>(wide.bits >> 23) - 127;
}

// The largest e in [-126, 126] with amax * 2^e <= the element's largest number, 448 = 1.75 * 2^8 or
// 57344 = 1.75 * 2^15; 0 for amax 0, Inf and NaN.
OCTAVO_HOST_DEVICE inline int ScaleExponent(float amax, Element element) {
  FloatBits wide;
  wide.value = amax;
  const uint32_t magnitude = wide.bits & 0x7FFFFFFFu;
  if (magnitude == 0 || magnitude >= 0x7F800000u) return 0;
  const int above = (magnitude & 0x7FFFFFu) > 0x600000u ? 1 : 0;  // mantissa above 1.75
  const int exponent = LargestExponent(element) - above - (static_cast<int>(magnitude >> 23) - 127);
  return exponent > kMaxScaleExponent ? kMaxScaleExponent : exponent;
}

OCTAVO_HOST_DEVICE inline bool IsFinite(bfloat16 x) { return (x.bits & 0x7F80u) != 0x7F80u; }

// What a tile's scale depends on. The largest of several tiles' amax is the amax of their union:
// an Inf stays, and ScaleExponent makes it 0.
struct TileStatistics {
  float amax = 0.0f;  // of every element but NaN

  OCTAVO_HOST_DEVICE void Add(float x) {
    const float magnitude = x < 0.0f ? -x : x;
    if (magnitude > amax) amax = magnitude;  // false for NaN
  }
};

}  // namespace octavo::kernels
