// How much memory the CPU backend keeps for itself, from sizes alone: for a memory estimate that is
// made before a backend exists, or on another machine. The operations take their sizes from here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_size.h"
#include "kernels/workspace.h"

namespace octavo::kernels::cpu {

// One buffer each; 0: not needed.
struct ScratchSizes {
  int64_t folded_a = 0;  // operands of an FP8 product as BF16
  int64_t folded_b = 0;
  int64_t wide_a = 0;  // operands of any product as FP32, and its result
  int64_t wide_b = 0;
  int64_t wide_bias = 0;
  int64_t wide_c = 0;
  int64_t attention = 0;

  int64_t total() const {
    return folded_a + folded_b + wide_a + wide_b + wide_bias + wide_c + attention;
  }
};

inline ScratchSizes ScratchSizesOf(const LargestOperations& largest, const Machine& machine) {
  constexpr int64_t kBfloat16 = 2;
  constexpr int64_t kFloat = 4;
  ScratchSizes bytes;
  if (!machine.float32_products) {
    bytes.folded_a = kBfloat16 * largest.fp8.a;
    bytes.folded_b = kBfloat16 * largest.fp8.b;
  } else {
    LargestProducts products = largest.bf16;
    products.Include(largest.fp8);
    bytes.wide_a = kFloat * products.a;
    bytes.wide_b = kFloat * products.b;
    bytes.wide_bias = kFloat * products.n;
    bytes.wide_c = kFloat * products.bfloat16_c;
  }
  if (largest.tokens == 0) return bytes;
  const AttentionSize size(largest.tokens, largest.tokens, largest.kv_heads, largest.head_dim);
  bytes.attention = kFloat * size.ForwardFloats(machine.threads);
  if (largest.backward)
    bytes.attention = std::max(bytes.attention, kFloat * size.BackwardFloats(machine.threads));
  return bytes;
}

}  // namespace octavo::kernels::cpu
