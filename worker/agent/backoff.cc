#include "worker/agent/backoff.h"

#include <algorithm>
#include <string>

#include "base/file.h"
#include "base/split_mix.h"

namespace octavo::agent {

absl::Duration Backoff::Next() {
  const double unit = static_cast<double>(NextSplitMix(&state_) >> 11) * 0x1p-53;
  const double fraction = 0.5 + 0.5 * unit;
  const absl::Duration wait = nominal_ * fraction;
  nominal_ = std::min(nominal_ * 2, options_.longest);
  return wait;
}

uint64_t RandomSeed() { return std::stoull(RandomHex(8), nullptr, 16); }

}  // namespace octavo::agent
