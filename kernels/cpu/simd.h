// Sixteen floats at a time, written once and compiled twice: for any x86-64 and for AVX-512. A body
// is a struct whose always-inlined static Run works on vectors; Vectorized<Body>(...) runs the
// variant that the processor has. The order of every sum is the source's, so both variants agree to
// the last bit where no product is fused with an addition.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/processor.h"
#include "kernels/numerics/bfloat16.h"

#define OCTAVO_INLINE inline __attribute__((always_inline))
#define OCTAVO_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace octavo::kernels::cpu {

typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef int32_t Integers __attribute__((vector_size(64)));
typedef uint16_t HalfWords __attribute__((vector_size(32)));
typedef uint8_t Bytes __attribute__((vector_size(16)));

template <typename Body, typename... Arguments>
OCTAVO_AVX512 __attribute__((noinline)) void RunAvx512(Arguments... arguments) {
  Body::Run(arguments...);
}

template <typename Body, typename... Arguments>
__attribute__((noinline)) void RunPortable(Arguments... arguments) {
  Body::Run(arguments...);
}

template <typename Body, typename... Arguments>
void Vectorized(Arguments... arguments) {
  if (ActiveProcessor() == Processor::kAvx512) {
    RunAvx512<Body>(arguments...);
  } else {
    RunPortable<Body>(arguments...);
  }
}

OCTAVO_INLINE Floats Splat(float x) { return x - Floats{}; }

OCTAVO_INLINE Floats Load(const float* from) {
  Floats x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

OCTAVO_INLINE void Store(float* to, Floats x) { std::memcpy(to, &x, sizeof(x)); }

OCTAVO_INLINE Floats Widen(HalfWords x) {
  return reinterpret_cast<Floats>(__builtin_convertvector(x, Words) << 16);
}

OCTAVO_INLINE Floats Load(const bfloat16* from) {
  HalfWords x;
  std::memcpy(&x, from, sizeof(x));
  return Widen(x);
}

// ToBfloat16 of each lane.
OCTAVO_INLINE HalfWords Narrow(Floats x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet = ((bits >> 16) & 0x8000u) | 0x7FC0u;
  return __builtin_convertvector((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded, HalfWords);
}

OCTAVO_INLINE void Store(bfloat16* to, Floats x) {
  const HalfWords narrow = Narrow(x);
  std::memcpy(to, &narrow, sizeof(narrow));
}

// The first `count` < kLanes elements; the other lanes are 0.
template <typename T>
OCTAVO_INLINE Floats LoadPart(const T* from, int64_t count) {
  T padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return Load(padded);
}

template <typename T>
OCTAVO_INLINE void StorePart(T* to, Floats x, int64_t count) {
  T padded[kLanes];
  Store(padded, x);
  for (int64_t i = 0; i < count; ++i) to[i] = padded[i];
}

// x rounded to BF16 and back.
OCTAVO_INLINE Floats RoundToBfloat16(Floats x) { return Widen(Narrow(x)); }

// Sums of halves, then of their halves.
OCTAVO_INLINE float Sum(Floats x) {
  float lanes[kLanes];
  Store(lanes, x);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// Lanes that are NaN in x take y.
OCTAVO_INLINE Floats Max(Floats x, Floats y) { return x > y ? x : y; }

OCTAVO_INLINE float MaxLane(Floats x) {
  float lanes[kLanes];
  Store(lanes, x);
  float result = lanes[0];
  for (int64_t i = 1; i < kLanes; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}

// e^x, relative error below 2^-22; infinite above 88.8, 0 below -104, NaN for NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its series to r^7, whose rest is below 2^-27; 2^n in two
// factors, so that results beyond the normal range round as they should.
OCTAVO_INLINE Floats Exp(Floats x) {
  x = x < -110.0f ? Splat(-110.0f) : x;
  x = x > 100.0f ? Splat(100.0f) : x;
  const Floats shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Floats n = shifted - 12582912.0f;
  const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
  Floats series = Splat(1.0f / 5040);
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Integers exponent = reinterpret_cast<Integers>(shifted) - 0x4B400000;
  const Integers half = exponent >> 1;
  const Floats low = reinterpret_cast<Floats>((half + 127) << 23);
  const Floats high = reinterpret_cast<Floats>((exponent - half + 127) << 23);
  return series * low * high;
}

// 1 / (1 + e^-x)
OCTAVO_INLINE Floats Sigmoid(Floats x) { return 1.0f / (1.0f + Exp(-x)); }

}  // namespace octavo::kernels::cpu
