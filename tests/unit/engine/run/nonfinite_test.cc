// Steps whose loss or gradient is not finite are reported, leave no trace in the weights, and end
// the run when they do not stop.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/run/run_fixture.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::RandomDocument;
using ::testing::HasSubstr;

// The first update throws the weights far beyond what BF16 activations can hold.
TestRun ExplodedRun(double learning_rate) {
  RunPlan plan = TinyPlan(16);
  plan.optimizer.learning_rate = learning_rate;
  return MakeRun(plan, {{RandomDocument(16, 48, 1)}, {RandomDocument(16, 48, 2)}});
}

TEST(NonfiniteSteps, AreReportedAndChangeNoWeight) {
  TestRun run = ExplodedRun(1e30);
  EXPECT_TRUE(run.Step().applied);
  const std::string weights = run.WeightsSha256();
  const StepReport second = run.Step();
  EXPECT_FALSE(second.applied);
  EXPECT_FALSE(std::isfinite(second.loss) && std::isfinite(second.gradient_norm));
  EXPECT_EQ(second.nonfinite_steps, 1);
  EXPECT_EQ(second.step, 2);
  const StepReport third = run.Step();
  EXPECT_EQ(third.nonfinite_steps, 2);
  EXPECT_EQ(third.total_tokens, 3 * 15);
  EXPECT_EQ(run.run->completed_steps(), 3);
  EXPECT_EQ(run.WeightsSha256(), weights);
}

TEST(NonfiniteSteps, EndTheRunAfterTenInARow) {
  TestRun run = ExplodedRun(1e30);
  run.Step();
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(run.Step().applied);
  const absl::StatusOr<StepReport> tenth = run.run->Step();
  EXPECT_TRUE(absl::IsOutOfRange(tenth.status()));
  EXPECT_THAT(
      std::string(tenth.status().message()),
      AllOf(HasSubstr("10 steps in a row"), HasSubstr("step 11"), HasSubstr("learning_rate")));
}

TEST(NonfiniteWeights, AreNeverPublished) {
  octavo::testing_support::TemporaryFolder root;
  TestRun run = ExplodedRun(1e39);
  run.Step();
  const absl::StatusOr<std::string> saved = run.run->SaveCheckpoint(root.At("checkpoint"));
  EXPECT_TRUE(absl::IsOutOfRange(saved.status())) << saved.status();
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr("model."));
  EXPECT_TRUE(std::filesystem::is_empty(root.path()));
}

}  // namespace
}  // namespace octavo::engine
