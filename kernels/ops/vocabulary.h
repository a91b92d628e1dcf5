// Both ends of the model: embedding lookup and the loss over the vocabulary.
#pragma once

#include <cstdint>

#include "kernels/numerics/bfloat16.h"

namespace octavo::kernels {

// y[t] = table[ids[t]]
struct EmbeddingForward {
  static constexpr char kName[] = "EmbeddingForward";
  const bfloat16* table;  // [vocabulary, columns]
  const int32_t* ids;     // [tokens], in [0, vocabulary)
  bfloat16* y;            // [tokens, columns]
  int64_t tokens;
  int64_t columns;
};

// dtable[ids[t]] += dy[t], in float32; tokens of one id are added in ascending t, so the result is
// reproducible.
struct EmbeddingBackward {
  static constexpr char kName[] = "EmbeddingBackward";
  const bfloat16* dy;  // [tokens, columns]
  const int32_t* ids;
  float* dtable;  // [vocabulary, columns]
  int64_t tokens;
  int64_t columns;
  int64_t vocabulary;
};

// loss[t] = logsumexp(logits[t]) - logits[t, target], in float32; 0 where target is negative
// (masked). With write_gradient, logits[t, v] becomes (softmax - onehot) * gradient_scale, rounded
// to BF16; 0 in masked rows.
struct CrossEntropy {
  static constexpr char kName[] = "CrossEntropy";
  bfloat16* logits;        // [tokens, vocabulary]
  const int32_t* targets;  // [tokens]
  float* loss;             // [tokens]
  int64_t tokens;
  int64_t vocabulary;
  bool write_gradient;
  float gradient_scale;
};

}  // namespace octavo::kernels
