// Vector code of the rotation by positions, which norms of heads share. Formula:
// kernels/ops/attention.h.
#if defined(OCTAVO_KERNELS_CPU_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_CPU_ROPE_INL_H_
#undef OCTAVO_KERNELS_CPU_ROPE_INL_H_
#else
#define OCTAVO_KERNELS_CPU_ROPE_INL_H_
#endif

#include "kernels/cpu/vectors_inl.h"
#include "kernels/ops/attention.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {

// Where a head of rope.x lies.
HWY_INLINE bfloat16* HeadOf(const Rope& rope, int64_t token, int64_t head) {
  return rope.x + token * PitchOr(rope.pitch, rope.heads * rope.head_dim) + head * rope.head_dim;
}

// One head of a token; `to` may be `from`. Products are rounded before they meet, on every target.
HWY_INLINE void RotateHead(const Rope& rope, int64_t token, const bfloat16* from, bfloat16* to) {
  const int64_t half = rope.head_dim / 2;
  const float* const cosine = rope.cosine + rope.positions[token] * half;
  const float* const sine = rope.sine + rope.positions[token] * half;
  const Floats direction = Splat(rope.inverse ? -1.0f : 1.0f);
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

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTAVO_KERNELS_CPU_ROPE_INL_H_
