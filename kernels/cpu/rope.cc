// Formula: kernels/ops/attention.h.
#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"

namespace octavo::kernels::cpu {
namespace {

// All heads of one token.
struct RopeToken {
  OCTAVO_INLINE static void Run(const Rope* op, int64_t token) {
    const int64_t half = op->head_dim / 2;
    const float* const cosine = op->cosine + op->positions[token] * half;
    const float* const sine = op->sine + op->positions[token] * half;
    const float direction = op->inverse ? -1.0f : 1.0f;
    for (int64_t head = 0; head < op->heads; ++head) {
      bfloat16* const low = op->x + (token * op->heads + head) * op->head_dim;
      bfloat16* const high = low + half;
      int64_t j = 0;
      for (; j + kLanes <= half; j += kLanes) {
        const Floats c = Load(cosine + j);
        const Floats s = Load(sine + j) * direction;
        const Floats x1 = Load(low + j);
        const Floats x2 = Load(high + j);
        Store(low + j, x1 * c - x2 * s);
        Store(high + j, x2 * c + x1 * s);
      }
      if (j == half) continue;
      const int64_t rest = half - j;
      const Floats c = LoadPart(cosine + j, rest);
      const Floats s = LoadPart(sine + j, rest) * direction;
      const Floats x1 = LoadPart(low + j, rest);
      const Floats x2 = LoadPart(high + j, rest);
      StorePart(low + j, x1 * c - x2 * s, rest);
      StorePart(high + j, x2 * c + x1 * s, rest);
    }
  }
};

}  // namespace

absl::Status RunOperation(const Rope& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.tokens; ++token)
    Vectorized<RopeToken>(&operation, token);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
