#include "worker/engine/data/permutation.h"

#include "base/split_mix.h"
#include "base/status.h"

namespace octavo::engine {

Permutation::Permutation(int64_t size, uint64_t seed, int64_t epoch)
    : size_(static_cast<uint64_t>(size)), half_bits_(1) {
  CHECK(size > 0);
  while ((uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
  uint64_t state = SplitMix(SplitMix(seed + kSplitMixIncrement) ^ static_cast<uint64_t>(epoch));
  for (uint64_t& key : keys_) key = NextSplitMix(&state);
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (SplitMix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator[](int64_t index) const {
  CHECK(index >= 0 && static_cast<uint64_t>(index) < size_);
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = Encrypt(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace octavo::engine
