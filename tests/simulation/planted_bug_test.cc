// Linked with a core from which one line was taken: the simulation must notice.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/simulation/simulation.h"

namespace octavo::simulation {
namespace {

TEST(OCTAVO_PLANTED_BUG_SUITE, IsFoundWithinTwoHundredSeeds) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const RunResult result = Simulate({.seed = seed, .flaws = {}});
    if (!result.violation) continue;
    std::cout << "found by seed " << seed << ", " << result.violation->invariant << ": "
              << result.violation->message << "\n";
    return;
  }
  FAIL() << "200 seeds did not notice " OCTAVO_PLANTED_BUG;
}

}  // namespace
}  // namespace octavo::simulation
