// BF16 and FP32 to 8-bit numbers with power-of-two scales.
//   amax = max |x| over the elements of the tile, NaN left out
//   e    = the largest in [-126, 126] with amax * 2^e <= largest, the largest number of the element
//          (E4M3 448, E5M2 57344); 0 for amax = 0 and for a tile that holds an infinity
//   code = element(x * 2^e), nearest even, saturating;  scale_inv = 2^-e
// NaN becomes code 0x7F. The formula is TransformerEngine's Float8BlockScaling with the exponent
// clamped so that scale and inverse stay normal.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/ops/quantized.h"

namespace octavo::kernels {

// Where the tiles of a matrix x [rows, columns] of BF16 numbers go: along rows (for FProp, DGrad)
// and, from the same source, along columns (for WGrad).
struct TileOutputs {
  QuantizedTensor by_rows;        // [rows, columns] in 1x128 tiles; null data: not wanted
  QuantizedTensor by_columns;     // x^T, [columns, rows] in 1x128 tiles; null data: not wanted
  uint64_t* nonfinite = nullptr;  // [1], the number of NaN and Inf in x is added; null: not counted

  bool wanted() const { return by_rows.data != nullptr || by_columns.data != nullptr; }
};

// Activations and output gradients. What other operations compute and quantise at once: fused.h.
struct QuantizeTiles {
  static constexpr char kName[] = "QuantizeTiles";
  const bfloat16* x;  // [rows, columns]
  int64_t rows;
  int64_t columns;
  TileOutputs tiles;
};

// Weights: 128x128 blocks of the FP32 master, rounded to BF16 first (as TransformerEngine's sharded
// path does).
struct QuantizeBlocks {
  static constexpr char kName[] = "QuantizeBlocks";
  const float* x;  // [rows, columns]
  int64_t rows;
  int64_t columns;
  QuantizedTensor normal;      // [rows, columns] in 128x128 blocks; null data: not wanted
  QuantizedTensor transposed;  // [columns, rows], the same codes and scales transposed; null data:
                               // not wanted
  uint64_t* nonfinite;         // [1], added to; null: not counted
};

}  // namespace octavo::kernels
