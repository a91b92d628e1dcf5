// Sixteen floats at a time, whatever the width of the target's registers: included once for each
// target by Highway's foreach_target.h. Every sum goes through sixteen lanes in the source's order,
// so its bits do not depend on the width. MulAdd rounds once where the target has FMA (AVX2,
// AVX-512, NEON) and twice elsewhere: AVX2 and AVX-512 agree to the last bit, SSE4 and the baseline
// agree with them wherever the product is exact, as that of two BF16 numbers is.
#if defined(OCTAVO_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_CPU_VECTORS_INL_H_
#undef OCTAVO_KERNELS_CPU_VECTORS_INL_H_
#else
#define OCTAVO_KERNELS_CPU_VECTORS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/lanes.h"
#include "kernels/numerics/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kLanes>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using IntegerTag = hn::RebindToSigned<FloatTag>;
using HalfWordTag = hn::Rebind<uint16_t, FloatTag>;

inline constexpr int64_t kPartLanes = hn::MaxLanes(FloatTag());
inline constexpr int kParts = static_cast<int>(kLanes / kPartLanes);

struct Floats {
  hn::VFromD<FloatTag> part[kParts];
};

HWY_INLINE Floats Splat(float x) {
  Floats result;
  for (int i = 0; i < kParts; ++i) result.part[i] = hn::Set(FloatTag(), x);
  return result;
}

HWY_INLINE Floats Zeros() { return Splat(0.0f); }

HWY_INLINE Floats operator+(Floats a, Floats b) {
  for (int i = 0; i < kParts; ++i) a.part[i] = hn::Add(a.part[i], b.part[i]);
  return a;
}

HWY_INLINE Floats operator-(Floats a, Floats b) {
  for (int i = 0; i < kParts; ++i) a.part[i] = hn::Sub(a.part[i], b.part[i]);
  return a;
}

HWY_INLINE Floats operator*(Floats a, Floats b) {
  for (int i = 0; i < kParts; ++i) a.part[i] = hn::Mul(a.part[i], b.part[i]);
  return a;
}

HWY_INLINE Floats operator/(Floats a, Floats b) {
  for (int i = 0; i < kParts; ++i) a.part[i] = hn::Div(a.part[i], b.part[i]);
  return a;
}

// a * b + c
HWY_INLINE Floats MulAdd(Floats a, Floats b, Floats c) {
  for (int i = 0; i < kParts; ++i) c.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}

// c - a * b
HWY_INLINE Floats NegMulAdd(Floats a, Floats b, Floats c) {
  for (int i = 0; i < kParts; ++i) c.part[i] = hn::NegMulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}

// Lanes that are NaN in x take y.
HWY_INLINE Floats Max(Floats x, Floats y) {
  for (int i = 0; i < kParts; ++i)
    x.part[i] = hn::IfThenElse(hn::Gt(x.part[i], y.part[i]), x.part[i], y.part[i]);
  return x;
}

HWY_INLINE Floats Load(const float* from) {
  Floats x;
  for (int i = 0; i < kParts; ++i) x.part[i] = hn::LoadU(FloatTag(), from + i * kPartLanes);
  return x;
}

HWY_INLINE void Store(float* to, Floats x) {
  for (int i = 0; i < kParts; ++i) hn::StoreU(x.part[i], FloatTag(), to + i * kPartLanes);
}

HWY_INLINE const uint16_t* BitsOf(const bfloat16* x) {
  static_assert(sizeof(bfloat16) == sizeof(uint16_t));
  return reinterpret_cast<const uint16_t*>(x);
}
HWY_INLINE uint16_t* BitsOf(bfloat16* x) { return reinterpret_cast<uint16_t*>(x); }

HWY_INLINE hn::VFromD<FloatTag> Widen(hn::VFromD<HalfWordTag> bits) {
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), bits)));
}

HWY_INLINE Floats Load(const bfloat16* from) {
  Floats x;
  for (int i = 0; i < kParts; ++i)
    x.part[i] = Widen(hn::LoadU(HalfWordTag(), BitsOf(from) + i * kPartLanes));
  return x;
}

// The bits of ToBfloat16 of each lane, in the lower half of a word.
HWY_INLINE hn::VFromD<WordTag> RoundedBits(hn::VFromD<FloatTag> x) {
  const WordTag d;
  const auto bits = hn::BitCast(d, x);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(d, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7FFFu)), odd));
  const auto quiet = hn::Or(hn::And(high, hn::Set(d, 0x8000u)), hn::Set(d, 0x7FC0u));
  const auto is_nan = hn::RebindMask(d, hn::Ne(x, x));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

HWY_INLINE void Store(bfloat16* to, Floats x) {
  for (int i = 0; i < kParts; ++i) {
    const auto narrow =
        hn::DemoteTo(HalfWordTag(), hn::BitCast(IntegerTag(), RoundedBits(x.part[i])));
    hn::StoreU(narrow, HalfWordTag(), BitsOf(to) + i * kPartLanes);
  }
}

// The first `count` < kLanes elements; the other lanes are 0.
template <typename T>
HWY_INLINE Floats LoadPart(const T* from, int64_t count) {
  T padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return Load(padded);
}

template <typename T>
HWY_INLINE void StorePart(T* to, Floats x, int64_t count) {
  T padded[kLanes];
  Store(padded, x);
  for (int64_t i = 0; i < count; ++i) to[i] = padded[i];
}

// As many as there are, at most kLanes.
template <typename T>
HWY_INLINE Floats LoadUpTo(const T* from, int64_t count) {
  return count >= kLanes ? Load(from) : LoadPart(from, count);
}

template <typename T>
HWY_INLINE void StoreUpTo(T* to, Floats x, int64_t count) {
  if (count >= kLanes) {
    Store(to, x);
  } else {
    StorePart(to, x, count);
  }
}

// x rounded to BF16 and back.
HWY_INLINE Floats RoundToBfloat16(Floats x) {
  for (int i = 0; i < kParts; ++i)
    x.part[i] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(RoundedBits(x.part[i])));
  return x;
}

// Sums of halves, then of their halves.
HWY_INLINE float Sum(Floats x) {
  float lanes[kLanes];
  Store(lanes, x);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

HWY_INLINE float MaxLane(Floats x) {
  float lanes[kLanes];
  Store(lanes, x);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i)
      lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
  return lanes[0];
}

// e^x, relative error below 2^-22; infinite above 88.8, 0 below -104, NaN for NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its series to r^7, whose rest is below 2^-27; 2^n in two
// factors, so that results beyond the normal range round as they should.
HWY_INLINE hn::VFromD<FloatTag> Exp(hn::VFromD<FloatTag> x) {
  const FloatTag d;
  const IntegerTag di;
  const auto low_end = hn::Set(d, -110.0f);
  const auto high_end = hn::Set(d, 100.0f);
  x = hn::IfThenElse(hn::Lt(x, low_end), low_end, x);  // keeps NaN
  x = hn::IfThenElse(hn::Gt(x, high_end), high_end, x);
  const auto magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: rounds to an integer
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  const auto near = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // ln 2 in two parts
  const auto r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), near);
  auto series = hn::Set(d, 1.0f / 5040);
  series = hn::MulAdd(series, r, hn::Set(d, 1.0f / 720));
  series = hn::MulAdd(series, r, hn::Set(d, 1.0f / 120));
  series = hn::MulAdd(series, r, hn::Set(d, 1.0f / 24));
  series = hn::MulAdd(series, r, hn::Set(d, 1.0f / 6));
  series = hn::MulAdd(series, r, hn::Set(d, 0.5f));
  series = hn::MulAdd(series, r, hn::Set(d, 1.0f));
  series = hn::MulAdd(series, r, hn::Set(d, 1.0f));
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4B400000));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const auto low = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto high = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(series, low), high);
}

HWY_INLINE Floats Exp(Floats x) {
  for (int i = 0; i < kParts; ++i) x.part[i] = Exp(x.part[i]);
  return x;
}

// 1 / (1 + e^-x)
HWY_INLINE Floats Sigmoid(Floats x) {
  const Floats one = Splat(1.0f);
  return one / (one + Exp(Zeros() - x));
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTAVO_KERNELS_CPU_VECTORS_INL_H_
