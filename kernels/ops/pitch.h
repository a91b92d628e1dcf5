// A matrix may be a slice of a wider one: its pitch is the number of elements from the start of one
// row to the start of the next. 0 stands for rows that follow each other closely.
#pragma once

#include <cstdint>

#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

OCTAVO_HOST_DEVICE constexpr int64_t PitchOr(int64_t pitch, int64_t columns) {
  return pitch == 0 ? columns : pitch;
}

}  // namespace octavo::kernels
