// Sizes of buffers that the transformer allocates and the memory plan counts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace octavo::engine {

inline constexpr int64_t kTile = 128;

inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Scales of a [rows, columns] matrix in 1x128 tiles, and in 128x128 blocks.
inline int64_t TileScales(int64_t rows, int64_t columns) {
  return rows * CeilDivide(columns, kTile);
}
inline int64_t BlockScales(int64_t rows, int64_t columns) {
  return CeilDivide(rows, kTile) * CeilDivide(columns, kTile);
}

// The loss is taken over this many tokens at a time, so that their BF16 logits stay within 64 MiB:
// whole tiles of 128 rows where that many fit, at least one row.
inline int64_t HeadRows(int64_t max_tokens, int64_t vocabulary) {
  constexpr int64_t kLogitsBytes = 64 << 20;
  const int64_t fitting = std::max<int64_t>(kLogitsBytes / (2 * vocabulary), 1);
  const int64_t whole_tiles = fitting >= kTile ? fitting / kTile * kTile : fitting;
  return std::min(whole_tiles, max_tokens);
}

}  // namespace octavo::engine
