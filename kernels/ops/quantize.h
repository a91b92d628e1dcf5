// BF16 and FP32 to E4M3 with power-of-two scales.
//   amax = max |x| over the finite elements of the tile
//   e    = the largest in [-126, 126] with amax * 2^e <= 448; 0 for amax = 0 and with an Inf in it
//   code = E4M3(x * 2^e), nearest even, saturating;  scale_inv = 2^-e
// NaN becomes code 0x7F and does not enter amax. The formula is TransformerEngine's
// Float8BlockScaling with the exponent clamped so that scale and inverse stay normal.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"

namespace octavo::kernels {

// Activations and output gradients: tiles along rows (for FProp, DGrad) and, from the same source,
// along columns (for WGrad).
struct QuantizeTiles {
  static constexpr char kName[] = "QuantizeTiles";
  const bfloat16* x;  // [rows, columns]
  int64_t rows;
  int64_t columns;
  uint8_t* row_codes;       // [rows, columns]; null: not wanted
  float* row_scale_inv;     // [rows, ceil(columns / 128)]
  uint8_t* column_codes;    // [columns, rows], the codes of x^T; null: not wanted
  float* column_scale_inv;  // [columns, ceil(rows / 128)]
  uint32_t* nonfinite;      // [1], the number of NaN and Inf in x is added; null: not counted
};

// Weights: 128x128 blocks of the FP32 master, rounded to BF16 first (as TransformerEngine's sharded
// path does).
struct QuantizeBlocks {
  static constexpr char kName[] = "QuantizeBlocks";
  const float* x;  // [rows, columns]
  int64_t rows;
  int64_t columns;
  uint8_t* codes;               // [rows, columns]
  float* scale_inv;             // [ceil(rows / 128), ceil(columns / 128)]
  uint8_t* transposed_codes;    // [columns, rows], the same bytes transposed; null: not wanted
  float* transposed_scale_inv;  // [ceil(columns / 128), ceil(rows / 128)]
  uint32_t* nonfinite;          // [1], added to; null: not counted
};

}  // namespace octavo::kernels
