// Causal attention with grouped KV heads over packed rows, and rotary positions.
// Layout of every activation: [tokens, heads, head_dim], its tokens a pitch apart (pitch.h), so
// that queries, keys and values may lie side by side in one matrix, or in a cache of more heads. KV
// head g serves query heads g * r ... g * r + r - 1, r = heads / kv_heads.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"
#include "kernels/ops/pitch.h"

namespace octavo::kernels {

// Rotates pairs (j, j + head_dim / 2) by the angle of the token's position, in place (Hugging
// Face's rotate-half pairing):
//   x1' = x1 cos - x2 sin;  x2' = x2 cos + x1 sin
// With `inverse` the angle is negated, which is the backward.
struct Rope {
  static constexpr char kName[] = "Rope";
  bfloat16* x;          // [tokens, heads, head_dim]
  const float* cosine;  // [max_position, head_dim / 2], float32 that hold BF16 values
  const float* sine;
  const int32_t* positions;  // [tokens]
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  bool inverse;
  int64_t pitch = 0;  // of x
};

// The queries are those of the last q_tokens of kv_tokens tokens: query t is token
// kv_tokens - q_tokens + t and attends to tokens attend_from[t] up to itself. Rows and, if
// isolated, documents never see each other. In training q_tokens is kv_tokens; a generation that
// keeps keys and values has few queries.
//   p = softmax_j(scale * q_t . k_j);  out_t = sum_j p_j v_j
// Softmax in float32, the result rounded to BF16 once.
struct AttentionForward {
  static constexpr char kName[] = "AttentionForward";
  const bfloat16* q;           // [q_tokens, heads, head_dim]
  const bfloat16* k;           // [kv_tokens, kv_heads, head_dim]
  const bfloat16* v;           // [kv_tokens, kv_heads, head_dim]
  const int32_t* attend_from;  // [q_tokens], in [0, kv_tokens - q_tokens + t], never decreasing
  bfloat16* out;               // [q_tokens, heads, head_dim]
  float* log_sum_exp;          // [heads, q_tokens], kept for backward; null in evaluation
  int64_t q_tokens;
  int64_t kv_tokens;  // at least q_tokens
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  float scale;  // head_dim^-0.5
  int64_t q_pitch = 0;
  int64_t k_pitch = 0;
  int64_t v_pitch = 0;
  int64_t out_pitch = 0;
};

//   dv_j = sum_t p dout_t;  ds = p (dout_t . v_j - dout_t . out_t)
//   dq_t = scale sum_j ds k_j;  dk_j = scale sum_t ds q_t
struct AttentionBackward {
  static constexpr char kName[] = "AttentionBackward";
  const bfloat16* q;
  const bfloat16* k;
  const bfloat16* v;
  const bfloat16* out;
  const bfloat16* dout;      // [q_tokens, heads, head_dim]
  const float* log_sum_exp;  // [heads, q_tokens]
  const int32_t* attend_from;
  bfloat16* dq;  // [q_tokens, heads, head_dim]
  bfloat16* dk;  // [kv_tokens, kv_heads, head_dim]
  bfloat16* dv;
  int64_t q_tokens;
  int64_t kv_tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  float scale;
  int64_t q_pitch = 0;
  int64_t k_pitch = 0;
  int64_t v_pitch = 0;
  int64_t out_pitch = 0;
  int64_t dout_pitch = 0;
  int64_t dq_pitch = 0;
  int64_t dk_pitch = 0;
  int64_t dv_pitch = 0;
};

}  // namespace octavo::kernels
