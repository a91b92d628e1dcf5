// E4M3 (arXiv:2209.05433): sign, 4 exponent bits of bias 7, 3 mantissa bits. No infinities; the
// largest number is 448 (0x7E), NaN is 0x7F or 0xFF, subnormals are multiples of 2^-9.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

inline constexpr float kE4m3Max = 448.0f;
inline constexpr uint8_t kE4m3NaN = 0x7F;

// Nearest, ties to even; beyond 448, infinities too, the largest number; every NaN becomes 0x7F.
OCTAVO_HOST_DEVICE inline uint8_t FloatToE4m3(float x) {
  FloatBits wide;
  wide.value = x;
  const uint32_t sign = (wide.bits >> 24) & 0x80u;
  uint32_t magnitude = wide.bits & 0x7FFFFFFFu;
  const bool is_nan = magnitude > 0x7F800000u;
  if (magnitude > 0x43E00000u) magnitude = 0x43E00000u;  // 448
  // From 2^-6 on: keep 3 of 23 mantissa bits, move the bias from 127 to 7.
  const uint32_t normal =
      ((magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u)) >> 20) - (uint32_t{127 - 7} << 3);
  // Below: the last bit of a float32 next to 2^14 is 2^-9, so the addition rounds as E4M3 does.
  FloatBits subnormal;
  subnormal.bits = magnitude;
  subnormal.value += 16384.0f;
  const uint32_t code = magnitude < 0x3C800000u ? subnormal.bits - 0x46800000u : normal;
  return static_cast<uint8_t>(is_nan ? uint32_t{kE4m3NaN} : sign | code);
}

OCTAVO_HOST_DEVICE inline float E4m3ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  FloatBits wide;
  if (magnitude == kE4m3NaN) {
    wide.bits = 0x7FC00000u;
  } else if (magnitude >= 8) {
    wide.bits = (magnitude << 20) + (uint32_t{127 - 7} << 23);
  } else {
    wide.value = static_cast<float>(magnitude) * 0.001953125f;  // 2^-9
  }
  wide.bits |= sign;
  return wide.value;
}

}  // namespace octavo::kernels
