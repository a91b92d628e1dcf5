// How the CUDA backend keeps a quantised matrix: as cuBLASLt reads it (CUDA 13, "Scaling Factors
// Layouts"). Rows and columns are padded to multiples of 16 with zero codes, which add nothing to a
// product: leading dimensions and extents must be multiples of 16 bytes.
//   codes   [rows up to 16][columns up to 16]
//   scales  VEC128_32F: [ceil(columns / 128)][rows up to 16], the row index contiguous
//           BLK128x128_32F: [ceil(rows / 128)][ceil(columns / 128) up to 4]
// The scales start at the next multiple of 256 bytes. A padded row of 1x128 tiles has scale 1.
#pragma once

#include <cstdint>

#include "kernels/ops/quantized.h"

namespace octavo::kernels::cuda {

OCTAVO_HOST_DEVICE constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return CeilDiv(value, multiple) * multiple;
}

struct QuantizedLayout {
  uint8_t* codes;    // null: the tensor has no data
  float* scale_inv;  // the same
  Tile tile;
  Element element;
  int64_t rows;
  int64_t columns;
  int64_t padded_rows;
  int64_t padded_columns;  // bytes from a row of codes to the next
  int64_t block_stride;    // scales from a row of blocks to the next

  OCTAVO_HOST_DEVICE int64_t CodeAt(int64_t row, int64_t column) const {
    return row * padded_columns + column;
  }
  // `column_tile` counts tiles of 128 columns.
  OCTAVO_HOST_DEVICE int64_t ScaleAt(int64_t row, int64_t column_tile) const {
    return tile == Tile::k1x128 ? column_tile * padded_rows + row
                                : row / kScaleTile * block_stride + column_tile;
  }
};

OCTAVO_HOST_DEVICE constexpr int64_t CodeBytes(const QuantizedSpec& spec) {
  return RoundUp(RoundUp(spec.rows, 16) * RoundUp(spec.columns, 16), 256);
}

OCTAVO_HOST_DEVICE constexpr int64_t QuantizedBytes(const QuantizedSpec& spec) {
  const int64_t across = TileCount(spec.columns);
  const int64_t scales = spec.tile == Tile::k1x128 ? across * RoundUp(spec.rows, 16)
                                                   : TileCount(spec.rows) * RoundUp(across, 4);
  return CodeBytes(spec) + scales * static_cast<int64_t>(sizeof(float));
}

OCTAVO_HOST_DEVICE inline QuantizedLayout LayoutOf(const QuantizedTensor& tensor) {
  const QuantizedSpec& spec = tensor.spec;
  uint8_t* const codes = static_cast<uint8_t*>(tensor.data);
  return {
      .codes = codes,
      .scale_inv = codes == nullptr ? nullptr : reinterpret_cast<float*>(codes + CodeBytes(spec)),
      .tile = spec.tile,
      .element = spec.element,
      .rows = spec.rows,
      .columns = spec.columns,
      .padded_rows = RoundUp(spec.rows, 16),
      .padded_columns = RoundUp(spec.columns, 16),
      .block_stride = RoundUp(TileCount(spec.columns), 4)};
}

}  // namespace octavo::kernels::cuda
