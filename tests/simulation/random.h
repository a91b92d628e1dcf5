// Our own generator: the standard's distributions differ between libraries, and a seed must mean
// the same run everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace octavo::simulation {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return absl::Microseconds(
        Between(absl::ToInt64Microseconds(low), absl::ToInt64Microseconds(high)));
  }
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Fraction() < probability; }
  template <typename T>
  const T& Choose(const std::vector<T>& items) {
    return items[static_cast<size_t>(Between(0, static_cast<int64_t>(items.size()) - 1))];
  }

 private:
  uint64_t state_;
};

}  // namespace octavo::simulation
