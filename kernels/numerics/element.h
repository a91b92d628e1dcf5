// The two formats of 8-bit numbers. E4M3 has one mantissa bit more, E5M2 reaches 128 times higher
// and 128 times lower.
#pragma once

#include <cstdint>

#include "kernels/numerics/e4m3.h"
#include "kernels/numerics/e5m2.h"
#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

enum class Element { kE4M3, kE5M2 };

// The largest number of both formats is 1.75 * 2^this: 448 and 57344.
OCTAVO_HOST_DEVICE constexpr int LargestExponent(Element element) {
  return element == Element::kE4M3 ? 8 : 15;
}

// The smallest number above 0 is 2^this.
OCTAVO_HOST_DEVICE constexpr int SmallestExponent(Element element) {
  return element == Element::kE4M3 ? -9 : -16;
}

OCTAVO_HOST_DEVICE inline uint8_t FloatToCode(Element element, float x) {
  return element == Element::kE4M3 ? FloatToE4m3(x) : FloatToE5m2(x);
}

OCTAVO_HOST_DEVICE inline float CodeToFloat(Element element, uint8_t code) {
  return element == Element::kE4M3 ? E4m3ToFloat(code) : E5m2ToFloat(code);
}

}  // namespace octavo::kernels
