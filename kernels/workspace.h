// Memory that a backend keeps for itself, beside the operands of operations: what it is asked for
// at most decides how much. A run reserves it before its first step, so that no step allocates.
#pragma once

#include <algorithm>
#include <cstdint>

namespace octavo::kernels {

// What of a machine decides the size; a backend describes its own.
struct Machine {
  int64_t threads = 1;
  bool float32_products = false;  // BF16 operands are widened to FP32: a CPU without BF16 units
};

// The most elements that each operand has, over all products c[M,N] = a[M,K] b[N,K]^T of a kind.
struct LargestProducts {
  int64_t a = 0;
  int64_t b = 0;
  int64_t bfloat16_c = 0;  // of results in BF16
  int64_t n = 0;

  void Include(const LargestProducts& other) {
    a = std::max(a, other.a);
    b = std::max(b, other.b);
    bfloat16_c = std::max(bfloat16_c, other.bfloat16_c);
    n = std::max(n, other.n);
  }
};

// The largest operations of a run.
struct LargestOperations {
  LargestProducts fp8;
  LargestProducts bf16;
  int64_t tokens = 0;  // of attention; 0: there is none
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool backward = true;
};

}  // namespace octavo::kernels
