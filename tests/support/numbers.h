// Reproducible numbers for tests of operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/numerics/bfloat16.h"

namespace octavo::testing {

// Normally distributed with the given deviation.
inline std::vector<float> Normal(int64_t count, unsigned seed, float deviation = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(engine);
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

}  // namespace octavo::testing
