#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace octavo::simulation {
namespace {

constexpr uint64_t kSeeds = 200;

std::string Report(uint64_t seed, const RunResult& result) {
  if (!result.violation) return "";
  return absl::StrCat("simulation --seed=", seed, " violates ", result.violation->invariant, ": ",
                      result.violation->message, "\n", absl::StrJoin(result.last_lines, "\n"));
}

TEST(Simulation, NoSeedViolatesAnInvariant) {
  int64_t attempts = 0, ended = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RunResult result = Simulate({.seed = seed, .flaws = {}});
    ASSERT_EQ(Report(seed, result), "");
    attempts += result.attempts;
    for (const auto& [state, count] : result.ends) ended += count;
  }
  EXPECT_GT(ended, 10 * static_cast<int64_t>(kSeeds)) << "too few jobs to prove anything";
  EXPECT_GT(attempts, ended + ended / 4) << "too few restarts to prove anything";
}

TEST(Simulation, AFullDiskAloneCostsNoJobItsLease) {
  int64_t ended = 0;
  for (uint64_t seed = 1; seed <= kSeeds / 4; ++seed) {
    const RunResult result = Simulate({.seed = seed, .only_full_disk = true, .flaws = {}});
    ASSERT_EQ(Report(seed, result), "");
    for (const auto& [state, count] : result.ends) ended += count;
  }
  EXPECT_GT(ended, static_cast<int64_t>(kSeeds)) << "too few jobs to prove anything";
}

TEST(Simulation, SeedsThatOnceFailedHold) {
  for (const uint64_t seed :
       RegressionSeeds(OCTAVO_SOURCE_DIR "/tests/simulation/regressions.txt")) {
    EXPECT_EQ(Report(seed, Simulate({.seed = seed, .flaws = {}})), "");
  }
}

TEST(Simulation, TheSameSeedTwiceIsTheSameRun) {
  for (const uint64_t seed : {3u, 17u, 101u}) {
    const RunResult first = Simulate({.seed = seed, .flaws = {}});
    const RunResult second = Simulate({.seed = seed, .flaws = {}});
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
    EXPECT_NE(first.trace_hash, Simulate({.seed = seed + 1, .flaws = {}}).trace_hash);
  }
}

// The invariant that the first seed to fail violates; empty: none of them failed.
std::string FirstViolation(const Flaws& flaws) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RunResult result = Simulate({.seed = seed, .flaws = flaws});
    if (result.violation) return result.violation->invariant;
  }
  return "";
}

TEST(PlantedBug, AnAnswerBeforeItsWriteIsDurableIsFound) {
  EXPECT_EQ(FirstViolation({.answers_before_durable = true}), "nothing_lost");
}

TEST(PlantedBug, ATrainerThatOutlivesItsLeaseIsFound) {
  EXPECT_EQ(FirstViolation({.trainers_outlive_their_lease = true}), "one_lease");
}

TEST(PlantedBug, ALeaseCountedFromReceiptIsFound) {
  EXPECT_EQ(FirstViolation({.leases_count_from_receipt = true}), "one_lease");
}

}  // namespace
}  // namespace octavo::simulation
