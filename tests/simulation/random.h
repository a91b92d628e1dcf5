// What a seed decides: times, chances and choices, the same everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/split_mix.h"

namespace octavo::simulation {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return NextSplitMix(&state_); }
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
