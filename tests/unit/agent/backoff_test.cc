#include "worker/agent/backoff.h"

#include <gtest/gtest.h>

namespace octavo::agent {
namespace {

constexpr Backoff::Options kOptions = {.first = absl::Milliseconds(100),
                                       .longest = absl::Seconds(1)};

TEST(Backoff, WaitsDoubleUpToTheLongestWithinHalfAndWhole) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Backoff backoff(kOptions, seed);
    for (const int nominal_ms : {100, 200, 400, 800, 1000, 1000, 1000}) {
      const absl::Duration wait = backoff.Next();
      EXPECT_GE(wait, absl::Milliseconds(nominal_ms) / 2) << "seed " << seed;
      EXPECT_LE(wait, absl::Milliseconds(nominal_ms)) << "seed " << seed;
    }
  }
}

TEST(Backoff, ASuccessStartsAnew) {
  Backoff backoff(kOptions, 7);
  for (int i = 0; i < 5; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(100));
}

TEST(Backoff, DifferentSeedsWaitDifferently) {
  EXPECT_NE(Backoff(kOptions, 1).Next(), Backoff(kOptions, 2).Next());
}

}  // namespace
}  // namespace octavo::agent
