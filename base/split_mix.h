// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): our
// own generator, since the standard library's distributions differ between implementations and a
// seed must mean the same numbers everywhere. Not for secrets: see RandomHex.
#pragma once

#include <cstdint>

namespace octavo {

inline constexpr uint64_t kSplitMixIncrement = 0x9E3779B97F4A7C15;

// The output function: a bijection of 64 bits in which every bit of `z` reaches every bit of the
// result. The n-th number of a seed, counted from 0, is
// SplitMix(seed + (n + 1) * kSplitMixIncrement).
constexpr uint64_t SplitMix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The next number of the sequence that `state`, at first the seed, stands for.
constexpr uint64_t NextSplitMix(uint64_t* state) { return SplitMix(*state += kSplitMixIncrement); }

}  // namespace octavo
