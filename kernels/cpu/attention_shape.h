// What attention's forward and backward share: geometry, and how the work is cut.
//
// Tokens are cut into segments that see nothing of each other, segments into blocks of kBlock
// queries. A block goes through the keys that any of its queries looks at, in tiles of kTileKeys,
// so the cost follows the real spans and the working set does not grow with the row's length. Where
// the cuts lie depends on the shape and on attend_from alone, never on threads or the target.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/attention_size.h"
#include "kernels/numerics/bfloat16.h"
#include "kernels/ops/pitch.h"

namespace octavo::kernels::cpu {

inline constexpr int64_t kSegmentTokens = 512;  // a segment is at least so long

// [start, end)
struct TokenRange {
  int64_t start;
  int64_t end;

  int64_t count() const { return end - start; }
};

struct AttentionShape : AttentionSize {
  int64_t heads;
  const int32_t* attend_from;
  float scale;
  int64_t q_pitch;
  int64_t k_pitch;
  int64_t v_pitch;
  int64_t out_pitch;

  template <typename Operation>
  explicit AttentionShape(const Operation& op)
      : AttentionSize(op.q_tokens, op.kv_tokens, op.kv_heads, op.head_dim),
        heads(op.heads),
        attend_from(op.attend_from),
        scale(op.scale),
        q_pitch(PitchOr(op.q_pitch, query_columns())),
        k_pitch(PitchOr(op.k_pitch, key_columns())),
        v_pitch(PitchOr(op.v_pitch, key_columns())),
        out_pitch(PitchOr(op.out_pitch, query_columns())) {}

  int64_t query_columns() const { return heads * head_dim; }
  int64_t key_columns() const { return kv_heads * head_dim; }
  int64_t token(int64_t query) const { return kv_tokens - q_tokens + query; }
  int64_t group() const { return heads / kv_heads; }
};

inline absl::Status CheckSpans(const char* operation, const AttentionShape& shape) {
  for (int64_t t = 0; t < shape.q_tokens; ++t) {
    const int32_t from = shape.attend_from[t];
    if (from < 0 || from > shape.token(t) || (t > 0 && from < shape.attend_from[t - 1])) {
      return absl::InvalidArgumentError(absl::StrCat(operation, ": attend_from[", t, "] is ", from,
                                                     ", must be in [0, ", shape.token(t),
                                                     "] and not below its predecessor"));
    }
  }
  return absl::OkStatus();
}

// Queries. One that looks at itself alone starts what follows afresh: attend_from never decreases.
inline std::vector<TokenRange> SegmentsOf(const AttentionShape& shape) {
  std::vector<TokenRange> segments;
  int64_t start = 0;
  for (int64_t t = 1; t < shape.q_tokens; ++t) {
    if (shape.attend_from[t] != shape.token(t) || t - start < kSegmentTokens) continue;
    segments.push_back({start, t});
    start = t;
  }
  if (start < shape.q_tokens) segments.push_back({start, shape.q_tokens});
  return segments;
}

// The keys that a segment alone may look at; together the segments have all.
inline TokenRange KeysOf(const AttentionShape& shape, const TokenRange& segment) {
  return {segment.start == 0 ? 0 : shape.token(segment.start), shape.token(segment.end)};
}

inline int64_t BlockCount(const TokenRange& segment) { return CeilDiv(segment.count(), kBlock); }

inline TokenRange BlockOf(const TokenRange& segment, int64_t index) {
  const int64_t start = segment.start + index * kBlock;
  return {start, std::min(start + kBlock, segment.end)};
}

// One head of K or V: its first token, and the elements from a token to the next.
struct KeyHead {
  const bfloat16* first;
  int64_t pitch;
};

// Keys [from, from + keys) in whole panels; of these [first, end) may be looked at by the block.
struct KeyTile {
  int64_t from;
  int64_t keys;
  int64_t first;
  int64_t end;
};

// The block's first tile, and the one after `tile`; there is none where from >= end.
inline KeyTile TileAt(const AttentionShape& shape, const TokenRange& queries, int64_t from) {
  const int64_t end = std::min(from + kTileKeys, shape.token(queries.end));
  return {.from = from,
          .keys = RoundUp(end - from, kPanel),
          .first = std::max<int64_t>(from, shape.attend_from[queries.start]),
          .end = end};
}
inline KeyTile FirstTile(const AttentionShape& shape, const TokenRange& queries) {
  return TileAt(shape, queries, shape.attend_from[queries.start] / kPanel * kPanel);
}
inline KeyTile NextTile(const AttentionShape& shape, const TokenRange& queries,
                        const KeyTile& tile) {
  return TileAt(shape, queries, tile.from + kTileKeys);
}

}  // namespace octavo::kernels::cpu
