// Formula: kernels/ops/attention.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// All heads of one token. Products are rounded before they meet, on every target.
void RopeToken(const Rope& op, int64_t token) {
  const int64_t half = op.head_dim / 2;
  const float* const cosine = op.cosine + op.positions[token] * half;
  const float* const sine = op.sine + op.positions[token] * half;
  const Floats direction = Splat(op.inverse ? -1.0f : 1.0f);
  for (int64_t head = 0; head < op.heads; ++head) {
    bfloat16* const low =
        op.x + token * PitchOr(op.pitch, op.heads * op.head_dim) + head * op.head_dim;
    bfloat16* const high = low + half;
    for (int64_t j = 0; j < half; j += kLanes) {
      const int64_t rest = half - j;
      const Floats c = LoadUpTo(cosine + j, rest);
      const Floats s = LoadUpTo(sine + j, rest) * direction;
      const Floats x1 = LoadUpTo(low + j, rest);
      const Floats x2 = LoadUpTo(high + j, rest);
      StoreUpTo(low + j, x1 * c - x2 * s, rest);
      StoreUpTo(high + j, x2 * c + x1 * s, rest);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {
HWY_EXPORT(RopeToken);
}  // namespace

absl::Status RunOperation(const Rope& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.tokens; ++token)
    HWY_DYNAMIC_DISPATCH(RopeToken)(operation, token);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
