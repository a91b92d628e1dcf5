// Shapes of scale tensors. Edge tiles hold fewer elements and have a scale like any other.
#pragma once

#include <cstdint>

#include "kernels/numerics/host_device.h"

namespace octavo::kernels {

inline constexpr int64_t kScaleTile =
    128;  // elements under one scale, along a row or a block's side

OCTAVO_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tiles that cover `extent` elements.
OCTAVO_HOST_DEVICE constexpr int64_t TileCount(int64_t extent) {
  return CeilDiv(extent, kScaleTile);
}

}  // namespace octavo::kernels
