// Formula: kernels/ops/attention.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Products are rounded before they meet, on every target.
void RotateHead(const Rope& op, int64_t token, const bfloat16* from, bfloat16* to) {
  const int64_t half = op.head_dim / 2;
  const float* const cosine = op.cosine + op.positions[token] * half;
  const float* const sine = op.sine + op.positions[token] * half;
  const Floats direction = Splat(op.inverse ? -1.0f : 1.0f);
  for (int64_t j = 0; j < half; j += kLanes) {
    const int64_t rest = half - j;
    const Floats c = LoadUpTo(cosine + j, rest);
    const Floats s = LoadUpTo(sine + j, rest) * direction;
    const Floats x1 = LoadUpTo(from + j, rest);
    const Floats x2 = LoadUpTo(from + half + j, rest);
    StoreUpTo(to + j, x1 * c - x2 * s, rest);
    StoreUpTo(to + half + j, x2 * c + x1 * s, rest);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {
HWY_EXPORT(RotateHead);
}  // namespace

void Rotate(const Rope& rope, int64_t token, const bfloat16* from, bfloat16* to) {
  HWY_DYNAMIC_DISPATCH(RotateHead)(rope, token, from, to);
}

bfloat16* HeadOf(const Rope& rope, int64_t token, int64_t head) {
  return rope.x + token * PitchOr(rope.pitch, rope.heads * rope.head_dim) + head * rope.head_dim;
}

absl::Status RunOperation(const Rope& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.tokens; ++token) {
    for (int64_t head = 0; head < operation.heads; ++head) {
      bfloat16* const x = HeadOf(operation, token, head);
      Rotate(operation, token, x, x);
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
