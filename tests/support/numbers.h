// Reproducible numbers for tests of operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/split_mix.h"
#include "kernels/numerics/bfloat16.h"

namespace octavo::testing_support {

// Close to normally distributed, with the given deviation: a sum of 12 uniform numbers has variance
// 1, and sums of integers are the same everywhere.
inline std::vector<float> Normal(int64_t count, unsigned seed, float deviation = 1.0f) {
  uint64_t state = seed;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    int64_t sum = 0;
    for (int i = 0; i < 6; ++i) {
      const uint64_t random = NextSplitMix(&state);
      sum += static_cast<int64_t>(random >> 32) + static_cast<int64_t>(random & 0xFFFFFFFFu);
    }
    value = static_cast<float>(std::ldexp(static_cast<double>(sum), -32) - 6) * deviation;
  }
  return values;
}

inline std::vector<kernels::bfloat16> ToBfloat16(const std::vector<float>& values) {
  std::vector<kernels::bfloat16> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(kernels::ToBfloat16(value));
  return rounded;
}

inline std::vector<kernels::bfloat16> NormalBfloat16(int64_t count, unsigned seed,
                                                     float deviation = 1.0f) {
  return ToBfloat16(Normal(count, seed, deviation));
}

inline std::vector<double> ToDouble(const std::vector<kernels::bfloat16>& values) {
  std::vector<double> wide;
  wide.reserve(values.size());
  for (const kernels::bfloat16 value : values)
    wide.push_back(static_cast<double>(kernels::ToFloat(value)));
  return wide;
}

inline std::vector<double> ToDouble(const std::vector<float>& values) {
  return std::vector<double>(values.begin(), values.end());
}

// Bit patterns, for comparisons that tell -0 from 0 and hold for NaN.
inline std::vector<uint16_t> Bits(const std::vector<kernels::bfloat16>& values) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (const kernels::bfloat16 value : values) bits.push_back(value.bits);
  return bits;
}

}  // namespace octavo::testing_support
