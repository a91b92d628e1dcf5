// Sizes of buffers that the transformer allocates and the memory estimate counts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ops/quantized.h"
#include "worker/engine/model/shape.h"

namespace octavo::engine {

// The loss is taken over this many tokens at a time, so that their BF16 logits stay within 64 MiB:
// whole tiles of 128 rows where that many fit, at least one row.
inline int64_t HeadRows(int64_t max_tokens, int64_t vocabulary) {
  constexpr int64_t kLogitsBytes = 64 << 20;
  const int64_t fitting = std::max<int64_t>(kLogitsBytes / (2 * vocabulary), 1);
  constexpr int64_t kTile = kernels::kScaleTile;
  const int64_t whole_tiles = fitting >= kTile ? fitting / kTile * kTile : fitting;
  return std::min(whole_tiles, max_tokens);
}

// What the host writes for a step: its rate, and the count of updates of a run that goes on.
struct StepInput {
  double learning_rate;
  int64_t applied_updates;
};
inline constexpr int64_t kStepInputBytes = sizeof(StepInput);

// Elements between the arrays of a batch in memory: each starts on a multiple of 256 bytes.
inline int64_t BatchPitch(int64_t max_tokens) { return kernels::CeilDiv(max_tokens, 64) * 64; }

// Memory for the codes of any linear layer's weight. Both sides are multiples of four blocks, so
// that the bytes are the same whichever of them is the longer.
inline kernels::QuantizedSpec LargestWeightSpec(const ModelShape& shape) {
  constexpr int64_t kSide = 4 * kernels::kScaleTile;
  const int64_t widest = std::max({shape.q_columns(), shape.kv_columns(), shape.intermediate});
  return {.rows = kernels::CeilDiv(widest, kSide) * kSide,
          .columns = kernels::CeilDiv(shape.hidden, kSide) * kSide,
          .tile = kernels::Tile::k128x128,
          .role = kernels::Role::kB};
}

}  // namespace octavo::engine
