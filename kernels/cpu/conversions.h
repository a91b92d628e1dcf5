// Between number formats, in vectors: rows of BF16, float32 and of codes with their scales.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/element.h"

namespace octavo::kernels::cpu {

void RoundRow(const float* x, int64_t count, bfloat16* rounded);
// x + y, rounded. `rounded` may be y.
void AddAndRoundRow(const float* x, const bfloat16* y, int64_t count, bfloat16* rounded);
void WidenRow(const bfloat16* x, int64_t count, float* wide);

// value(codes[c]) * scale_inv[c / 128]. As BF16 exact while the numbers stay normal, for a code has
// at most 4 significant bits.
void DecodeRow(Element element, const uint8_t* codes, const float* scale_inv, int64_t columns,
               bfloat16* out);
void DecodeRow(Element element, const uint8_t* codes, const float* scale_inv, int64_t columns,
               float* out);

}  // namespace octavo::kernels::cpu
