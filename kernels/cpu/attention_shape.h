// What attention's forward and backward share: geometry, widened operands, scores.
//
// Keys and values of every KV head are widened to float32 once. Blocks of kBlock queries then look
// at the keys that any of them attends to, so the cost follows the real spans. A block's scores are
// whole rows: softmax needs no running rescale.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/small_gemm.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {

inline constexpr int64_t kBlock = 32;  // queries; a block's scores of 8192 keys are 1 MiB

inline int64_t RoundUp(int64_t count, int64_t to) { return CeilDiv(count, to) * to; }

struct AttentionShape {
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  const int32_t* attend_from;
  float scale;
  int64_t padded_tokens;  // whole panels of keys
  int64_t padded_dim;     // whole vectors

  template <typename Operation>
  explicit AttentionShape(const Operation& op)
      : tokens(op.tokens),
        heads(op.heads),
        kv_heads(op.kv_heads),
        head_dim(op.head_dim),
        attend_from(op.attend_from),
        scale(op.scale),
        padded_tokens(RoundUp(op.tokens, kPanel)),
        padded_dim(RoundUp(op.head_dim, kLanes)) {}

  int64_t blocks() const { return CeilDiv(tokens, kBlock); }
  int64_t group() const { return heads / kv_heads; }
  int64_t head_floats() const { return padded_tokens * padded_dim; }  // of one widened head
};

inline absl::Status CheckSpans(const char* operation, const AttentionShape& shape) {
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const int32_t from = shape.attend_from[t];
    if (from < 0 || from > t || (t > 0 && from < shape.attend_from[t - 1])) {
      return absl::InvalidArgumentError(absl::StrCat(operation, ": attend_from[", t, "] is ", from,
                                                     ", must be in [0, ", t,
                                                     "] and not below its predecessor"));
    }
  }
  return absl::OkStatus();
}

// Queries [start, end) and the keys [from, from + keys) they look at, in whole panels.
struct Span {
  int64_t start;
  int64_t end;
  int64_t from;
  int64_t keys;

  int64_t queries() const { return end - start; }
};

inline Span SpanOf(const AttentionShape& shape, int64_t block) {
  const int64_t start = block * kBlock;
  const int64_t end = std::min(start + kBlock, shape.tokens);
  const int64_t from = shape.attend_from[start] / kPanel * kPanel;
  return {.start = start, .end = end, .from = from, .keys = RoundUp(end - from, kPanel)};
}

// `rows` rows of a head, `pitch` apart, to to[row * padded_dim + d]; padding is cleared.
OCTAVO_INLINE void WidenRows(const bfloat16* x, int64_t pitch, int64_t rows,
                             const AttentionShape& shape, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    const bfloat16* const from = x + row * pitch;
    float* const line = to + row * shape.padded_dim;
    int64_t d = 0;
    for (; d + kLanes <= shape.head_dim; d += kLanes) Store(line + d, Load(from + d));
    if (d < shape.head_dim) Store(line + d, LoadPart(from + d, shape.head_dim - d));
  }
}

// One KV head of K or V as rows: to[token * padded_dim + d], zero beyond the tokens.
struct WidenHeadRows {
  OCTAVO_INLINE static void Run(const AttentionShape* shape, const bfloat16* head, float* to) {
    WidenRows(head, shape->kv_heads * shape->head_dim, shape->tokens, *shape, to);
    std::fill(to + shape->tokens * shape->padded_dim, to + shape->head_floats(), 0.0f);
  }
};

// One KV head of K or V transposed, in panels: to[(token / kPanel * padded_dim + d) * kPanel +
// token % kPanel], zero beyond the tokens.
struct WidenHeadPanels {
  OCTAVO_INLINE static void Run(const AttentionShape* shape, const bfloat16* head, float* to) {
    const int64_t pitch = shape->kv_heads * shape->head_dim;
    for (int64_t first = 0; first < shape->padded_tokens; first += kPanel) {
      const int64_t count = std::min(kPanel, shape->tokens - first);
      for (int64_t d = 0; d < shape->head_dim; ++d) {
        float* const line = to + first * shape->padded_dim + d * kPanel;
        for (int64_t i = 0; i < count; ++i) line[i] = ToFloat(head[(first + i) * pitch + d]);
        std::fill(line + count, line + kPanel, 0.0f);
      }
    }
  }
};

// result[query, key] = x[query] . y[key] over the span: x rows of padded_dim, y panels of a head.
OCTAVO_INLINE void DotAll(const AttentionShape& shape, const Span& span, const float* x,
                          const float* y_panels, float* result) {
  std::fill(result, result + span.queries() * span.keys, 0.0f);
  Multiply({.a = x,
            .a_row_stride = shape.padded_dim,
            .a_k_stride = 1,
            .b = y_panels + span.from * shape.padded_dim,
            .b_pitch = kPanel,
            .b_panel_stride = kPanel * shape.padded_dim,
            .c = result,
            .c_pitch = span.keys,
            .m = span.queries(),
            .n = span.keys,
            .k = shape.head_dim});
}

// sums[query] += sum over the span's keys of weights[query, key] * y[key]: y rows of a head.
OCTAVO_INLINE void SumAll(const AttentionShape& shape, const Span& span, const float* weights,
                          const float* y_rows, float* sums) {
  Multiply({.a = weights,
            .a_row_stride = span.keys,
            .a_k_stride = 1,
            .b = y_rows + span.from * shape.padded_dim,
            .b_pitch = shape.padded_dim,
            .b_panel_stride = kPanel,
            .c = sums,
            .c_pitch = shape.padded_dim,
            .m = span.queries(),
            .n = shape.padded_dim,
            .k = span.keys});
}

// A query's row of q . k becomes scores: scaled, and -infinity where the query must not look.
OCTAVO_INLINE void ScaleAndMask(const AttentionShape& shape, const Span& span, int64_t token,
                                float* row) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < span.keys; j += kLanes) Store(row + j, Load(row + j) * shape.scale);
  std::fill(row, row + (shape.attend_from[token] - span.from), kNever);
  std::fill(row + (token + 1 - span.from), row + span.keys, kNever);
}

}  // namespace octavo::kernels::cpu
