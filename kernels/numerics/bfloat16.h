// BF16: the upper 16 bits of an IEEE float32. 8 significant bits, exponent range of float32.
#pragma once

#include <cstdint>

#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

union FloatBits {
  float value;
  uint32_t bits;
};

struct bfloat16 {
  uint16_t bits;
};

OCTAVO_HOST_DEVICE inline float ToFloat(bfloat16 x) {
  FloatBits wide;
  wide.bits = static_cast<uint32_t>(x.bits) << 16;
  return wide.value;
}

// Nearest, ties to even; overflow becomes infinity; every NaN becomes the quiet NaN 0x7FC0 with its
// sign kept.
OCTAVO_HOST_DEVICE inline bfloat16 ToBfloat16(float x) {
  FloatBits wide;
  wide.value = x;
  if ((wide.bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return {static_cast<uint16_t>(((wide.bits >> 16) & 0x8000u) | 0x7FC0u)};
  }
  return {static_cast<uint16_t>((wide.bits + 0x7FFFu + ((wide.bits >> 16) & 1u)) >> 16)};
}

}  // namespace octavo::kernels
