// Matrices as slices of wider ones: what lies between their rows is poison that must neither reach
// a result nor change.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/numerics/bfloat16.h"
#include "tests/support/device.h"

namespace octavo::testing_support {

// The rows of `x` lie `pitch` apart, `between` between them and behind the last.
template <typename T>
std::vector<T> Spread(const std::vector<T>& x, int64_t columns, int64_t pitch, T between) {
  const auto rows = static_cast<int64_t>(x.size()) / columns;
  std::vector<T> spread(static_cast<size_t>(rows * pitch), between);
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(x.begin() + row * columns, columns, spread.begin() + row * pitch);
  return spread;
}

inline kernels::bfloat16* PutRows(Device* device, const std::vector<kernels::bfloat16>& x,
                                  int64_t columns, int64_t pitch) {
  const kernels::bfloat16 nan = kernels::ToBfloat16(std::numeric_limits<float>::quiet_NaN());
  return device->Put(Spread(x, columns, pitch, nan));
}

// The rows of an array of Device::Make, and a failure where something was written between them.
template <typename T>
std::vector<T> GetRows(Device* device, const T* array, int64_t rows, int64_t columns,
                       int64_t pitch) {
  const std::vector<T> spread = device->Get(array, rows * pitch);
  const std::vector<unsigned char> poison(sizeof(T), 0xA5);
  std::vector<T> result;
  for (int64_t i = 0; i < rows * pitch; ++i) {
    const T& value = spread[static_cast<size_t>(i)];
    if (i % pitch < columns) {
      result.push_back(value);
    } else if (std::memcmp(&value, poison.data(), sizeof(T)) != 0) {
      ADD_FAILURE() << "row " << i / pitch << " was written at column " << i % pitch << " of "
                    << columns;
      break;
    }
  }
  return result;
}

}  // namespace octavo::testing_support
