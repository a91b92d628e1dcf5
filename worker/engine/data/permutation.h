// A permutation of [0, size) that is a pure function of (size, seed, epoch).
#pragma once

#include <cstdint>

namespace octavo::engine {

// A Feistel network of SplitMix64 rounds on the next power of four, walked until it falls below
// `size` (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"): any element without the
// memory of a shuffled list. Fewer than 4 steps on average.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, int64_t epoch);  // 0 < size
  int64_t operator[](int64_t index) const;                  // 0 <= index < size

 private:
  uint64_t Encrypt(uint64_t value) const;

  static constexpr int kRounds = 6;
  uint64_t size_;
  int half_bits_;
  uint64_t keys_[kRounds];
};

}  // namespace octavo::engine
