// How long to wait before the next try.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace octavo::agent {

// Waits double from `first` to `longest`. Each is drawn from [half, whole] of its nominal length,
// so that workers which lost the coordinator together do not come back together.
class Backoff {
 public:
  struct Options {
    absl::Duration first = absl::Milliseconds(100);
    absl::Duration longest = absl::Seconds(5);
  };
  Backoff(Options options, uint64_t seed)
      : options_(options), nominal_(options.first), state_(seed) {}

  absl::Duration Next();
  void Reset() { nominal_ = options_.first; }  // after a success
  void LimitTo(absl::Duration longest) { options_.longest = longest; }

 private:
  Options options_;
  absl::Duration nominal_;
  uint64_t state_;
};

// A seed from the system's randomness.
uint64_t RandomSeed();

}  // namespace octavo::agent
