// The formulas of norm.h, elementwise.h and rope.h on a part of a row, in vectors: what operations
// that store their result and those that quantise it at once have in common.
#pragma once

#include <cstdint>

#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/norm.h"

namespace octavo::kernels::cpu {

// `columns` elements of a row, from `column` on.
struct RowPart {
  int64_t row;
  int64_t column;
  int64_t columns;
};

// r of a row.
float InverseRms(const RmsNormForward& norm, int64_t row);
// r of every row into norm.inverse_rms, and their count if asked for.
void InverseRmsOfRows(const RmsNormForward& norm);
// y of a part of a row whose r is `inverse_rms`.
void Normalise(const RmsNormForward& norm, float inverse_rms, const RowPart& part, bfloat16* y);

void Swiglu(const SwigluForward& swiglu, const RowPart& part, bfloat16* y);
void SwigluGradients(const SwigluBackward& swiglu, const RowPart& part, bfloat16* dgate,
                     bfloat16* dup);

// Where a head of rope.x lies.
bfloat16* HeadOf(const Rope& rope, int64_t token, int64_t head);
// Rows [first, end) of a backward, whose dy lies elsewhere.
struct Band {
  int64_t first;
  int64_t end;
  const bfloat16* dy;
};

// One head of a token; `to` may be `from`.
void Rotate(const Rope& rope, int64_t token, const bfloat16* from, bfloat16* to);

}  // namespace octavo::kernels::cpu
