// E5M2 (arXiv:2209.05433): sign, 5 exponent bits of bias 15, 2 mantissa bits. The upper byte of an
// IEEE half: 0x7C is infinity, 0x7D to 0x7F are NaN, the largest number is 57344 (0x7B), subnormals
// are multiples of 2^-16.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

inline constexpr float kE5m2Max = 57344.0f;
inline constexpr uint8_t kE5m2NaN = 0x7F;
inline constexpr uint8_t kE5m2Infinity = 0x7C;

// Nearest, ties to even; beyond 57344, infinities too, the largest number (no conversion makes the
// format's infinity); every NaN becomes 0x7F.
OCTAVO_HOST_DEVICE inline uint8_t FloatToE5m2(float x) {
  FloatBits wide;
  wide.value = x;
  const uint32_t sign = (wide.bits >> 24) & 0x80u;
  uint32_t magnitude = wide.bits & 0x7FFFFFFFu;
  const bool is_nan = magnitude > 0x7F800000u;
  if (magnitude > 0x47600000u) magnitude = 0x47600000u;  // 57344
  // From 2^-14 on: keep 2 of 23 mantissa bits, move the bias from 127 to 15.
  const uint32_t normal =
      ((magnitude + 0xFFFFFu + ((magnitude >> 21) & 1u)) >> 21) - (uint32_t{127 - 15} << 2);
  // Below: the last bit of a float32 next to 2^7 is 2^-16, so the addition rounds as E5M2 does.
  FloatBits subnormal;
  subnormal.bits = magnitude;
  subnormal.value += 128.0f;
  const uint32_t code = magnitude < 0x38800000u ? subnormal.bits - 0x43000000u : normal;
  return static_cast<uint8_t>(is_nan ? uint32_t{kE5m2NaN} : sign | code);
}

OCTAVO_HOST_DEVICE inline float E5m2ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  FloatBits wide;
  if (magnitude > kE5m2Infinity) {
    wide.bits = 0x7FC00000u;
  } else if (magnitude == kE5m2Infinity) {
    wide.bits = 0x7F800000u;
  } else if (magnitude >= 4) {
    wide.bits = (magnitude << 21) + (uint32_t{127 - 15} << 23);
  } else {
    wide.value = static_cast<float>(magnitude) * 0.0000152587890625f;  // 2^-16
  }
  wide.bits |= sign;
  return wide.value;
}

}  // namespace octavo::kernels
