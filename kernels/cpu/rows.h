// The formulas of norm.h, elementwise.h and rope.h on a part of a row, in vectors: what operations
// that store their result and those that quantise it at once have in common.
#pragma once

#include <cstdint>

#include "kernels/ops/elementwise.h"
#include "kernels/ops/norm.h"

namespace octavo::kernels::cpu {

// `columns` elements of a row, from `column` on.
struct RowPart {
  int64_t row;
  int64_t column;
  int64_t columns;
};

// r of every row into norm.inverse_rms, and the count of rows without a usable one.
void InverseRmsOfRows(const RmsNormForward& norm);
// y of a part of a row whose r is `inverse_rms`.
void Normalise(const RmsNormForward& norm, float inverse_rms, const RowPart& part, bfloat16* y);

void Swiglu(const SwigluForward& swiglu, const RowPart& part, bfloat16* y);
void SwigluGradients(const SwigluBackward& swiglu, const RowPart& part, bfloat16* dgate,
                     bfloat16* dup);

// Rows [first, end) of a norm's backward, whose dy lies without gaps at `dy`.
struct Band {
  int64_t first;
  int64_t end;
  const bfloat16* dy;
};

}  // namespace octavo::kernels::cpu
