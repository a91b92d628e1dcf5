// How the CPU backend keeps a quantised matrix: its codes row by row without gaps, then, from the
// next multiple of 64 bytes on, its scales in row-major order.
#pragma once

#include <cstdint>

#include "kernels/ops/quantized.h"

namespace octavo::kernels::cpu {

inline constexpr int64_t kScaleAlignment = 64;

constexpr int64_t ScalesOffset(const QuantizedSpec& spec) {
  return CeilDiv(spec.rows * spec.columns, kScaleAlignment) * kScaleAlignment;
}

constexpr int64_t QuantizedBytes(const QuantizedSpec& spec) {
  return ScalesOffset(spec) + spec.scales() * static_cast<int64_t>(sizeof(float));
}

struct Fp8Matrix {
  uint8_t* codes;    // [rows, columns]
  float* scale_inv;  // [scale_rows, scale_columns]
  int64_t rows;
  int64_t columns;
  Tile tile;
  Element element;
};

// Where codes and scales of a tensor lie; of a tensor without data, nulls.
inline Fp8Matrix MatrixOf(const QuantizedTensor& tensor) {
  auto* const codes = static_cast<uint8_t*>(tensor.data);
  const QuantizedSpec& spec = tensor.spec;
  return {.codes = codes,
          .scale_inv =
              codes == nullptr ? nullptr : reinterpret_cast<float*>(codes + ScalesOffset(spec)),
          .rows = spec.rows,
          .columns = spec.columns,
          .tile = spec.tile,
          .element = spec.element};
}

}  // namespace octavo::kernels::cpu
