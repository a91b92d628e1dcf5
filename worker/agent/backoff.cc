#include "worker/agent/backoff.h"

#include <algorithm>
#include <string>

#include "base/file.h"

namespace octavo::agent {

absl::Duration Backoff::Next() {
  // SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
  uint64_t z = (state_ += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  const double fraction =
      0.5 + 0.5 * static_cast<double>(z >> 11) / static_cast<double>(1ull << 53);
  const absl::Duration wait = nominal_ * fraction;
  nominal_ = std::min(nominal_ * 2, options_.longest);
  return wait;
}

uint64_t RandomSeed() { return std::stoull(RandomHex(8), nullptr, 16); }

}  // namespace octavo::agent
