// A patch of 128 x 128 numbers, one whole tile each way, and the vector code of quantisation on it.
// Every target gives the same bytes: largest magnitudes are exact, and a code is one rounding of an
// exact product with a power of two.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {

inline constexpr int kSide = static_cast<int>(kScaleTile);

struct alignas(64) Patch {
  bfloat16 x[kSide][kSide];
};
struct alignas(64) Codes {
  uint8_t code[kSide][kSide];
};

// Which way of a patch its tiles run.
enum class Way { kRows, kColumns };

// The largest magnitude of each row or of each column, [kSide], but for NaN.
void LargestOfTiles(Way way, const Patch& patch, float* amax);
// Of the whole patch.
float LargestOf(const Patch& patch);
// The number of NaN and Inf.
uint32_t CountNonfinite(const Patch& patch);

// FloatToCode of each number times its tile's scale; `scales`, [kSide], are powers of two.
void Encode(Element element, Way way, const Patch& patch, const float* scales, Codes* codes);

void Transpose(const Codes& codes, Codes* transposed);

}  // namespace octavo::kernels::cpu
