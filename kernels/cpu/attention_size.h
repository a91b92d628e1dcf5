// How much memory attention works in, from sizes alone: attention_shape.h adds what it works on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {

inline constexpr int64_t kBlock = 48;      // queries; whole patches of small_gemm_inl.h
inline constexpr int64_t kTileKeys = 128;  // a block's scores of a tile fit an L1 cache

inline int64_t RoundUp(int64_t count, int64_t to) { return CeilDiv(count, to) * to; }

struct AttentionSize {
  int64_t q_tokens;
  int64_t kv_tokens;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t padded_tokens;  // whole panels of keys
  int64_t padded_dim;     // whole vectors

  AttentionSize(int64_t queries, int64_t keys, int64_t kv_head_count, int64_t columns)
      : q_tokens(queries),
        kv_tokens(keys),
        kv_heads(kv_head_count),
        head_dim(columns),
        padded_tokens(RoundUp(keys, kPanel)),
        padded_dim(RoundUp(columns, kLanes)) {}

  int64_t head_floats() const { return padded_tokens * padded_dim; }  // of one widened head

  // Sums that dk and dv of each KV head are dealt to: at least 8 in all for so many threads,
  // whatever their number.
  int64_t parts() const { return std::min(CeilDiv(8, kv_heads), CeilDiv(q_tokens, kBlock)); }

  // Of a thread.
  int64_t ForwardWorkFloats() const {
    return (2 * kBlock + kTileKeys) * padded_dim + kBlock * kTileKeys;
  }
  int64_t BackwardWorkFloats() const {
    return (3 * kBlock + kTileKeys) * padded_dim + 2 * kBlock * kTileKeys;
  }

  // In all: panels of K; panels of K and V and the sums of dk and dv.
  int64_t ForwardFloats(int64_t threads) const {
    return kv_heads * head_floats() + threads * ForwardWorkFloats();
  }
  int64_t BackwardFloats(int64_t threads) const {
    return 2 * kv_heads * (head_floats() + parts() * kv_tokens * padded_dim) +
           threads * BackwardWorkFloats();
  }
};

}  // namespace octavo::kernels::cpu
