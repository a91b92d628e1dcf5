// Causal attention with grouped KV heads over packed rows, and rotary positions.
// Layout of every activation: [tokens, heads, head_dim]. KV head g serves query heads
// g * r ... g * r + r - 1, r = heads / kv_heads.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"

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
};

// Token t attends to tokens attend_from[t] ... t: rows and, if isolated, documents never see each
// other.
//   p = softmax_j(scale * q_t . k_j);  out_t = sum_j p_j v_j
// Softmax in float32, the result rounded to BF16 once.
struct AttentionForward {
  static constexpr char kName[] = "AttentionForward";
  const bfloat16* q;           // [tokens, heads, head_dim]
  const bfloat16* k;           // [tokens, kv_heads, head_dim]
  const bfloat16* v;           // [tokens, kv_heads, head_dim]
  const int32_t* attend_from;  // [tokens], in [0, t], never decreasing
  bfloat16* out;               // [tokens, heads, head_dim]
  float* log_sum_exp;          // [heads, tokens], kept for backward; null in evaluation
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  float scale;  // head_dim^-0.5
};

//   dv_j = sum_t p dout_t;  ds = p (dout_t . v_j - dout_t . out_t)
//   dq_t = scale sum_j ds k_j;  dk_j = scale sum_t ds q_t
struct AttentionBackward {
  static constexpr char kName[] = "AttentionBackward";
  const bfloat16* q;
  const bfloat16* k;
  const bfloat16* v;
  const bfloat16* out;
  const bfloat16* dout;      // [tokens, heads, head_dim]
  const float* log_sum_exp;  // [heads, tokens]
  const int32_t* attend_from;
  bfloat16* dq;  // [tokens, heads, head_dim]
  bfloat16* dk;  // [tokens, kv_heads, head_dim]
  bfloat16* dv;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  float scale;
};

}  // namespace octavo::kernels
