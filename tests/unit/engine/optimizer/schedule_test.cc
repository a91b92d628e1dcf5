#include "worker/engine/optimizer/schedule.h"

#include <cmath>

#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

RunSpec Plan(ScheduleSpec::Kind kind, int64_t steps, int64_t warmup, int64_t decay = 0) {
  RunSpec spec;
  spec.optimizer.learning_rate = 1e-3;
  spec.optimizer.min_learning_rate = 1e-4;
  spec.schedule = {.kind = kind, .warmup_steps = warmup, .decay_steps = decay};
  spec.steps = steps;
  return spec;
}

using Kind = ScheduleSpec::Kind;

TEST(LearningRate, WarmsUpToThePeakFromTheFirstStep) {
  const RunSpec spec = Plan(Kind::kWsd, 20, 4, 5);
  EXPECT_EQ(LearningRate(spec, 1), 1e-3 / 4);
  EXPECT_EQ(LearningRate(spec, 4), 1e-3);
  EXPECT_EQ(LearningRate(spec, 15), 1e-3);
  EXPECT_LT(LearningRate(spec, 16), 1e-3);
}

TEST(LearningRate, IsExactlyTheMinimumAtTheLastStep) {
  for (const int64_t steps : {1, 2, 3, 7, 33, 1000}) {
    EXPECT_EQ(LearningRate(Plan(Kind::kCosine, steps, 0), steps), 1e-4) << steps;
    EXPECT_EQ(LearningRate(Plan(Kind::kCosine, steps, steps / 2), steps), 1e-4) << steps;
    EXPECT_EQ(LearningRate(Plan(Kind::kWsd, steps, 0, 1), steps), 1e-4) << steps;
    EXPECT_EQ(LearningRate(Plan(Kind::kWsd, steps, 0, steps), steps), 1e-4) << steps;
  }
}

TEST(LearningRate, StaysAtThePeakWithoutDecay) {
  EXPECT_EQ(LearningRate(Plan(Kind::kWsd, 6, 1, 0), 6), 1e-3);
  EXPECT_EQ(LearningRate(Plan(Kind::kConstant, 6, 0), 6), 1e-3);
  EXPECT_EQ(LearningRate(Plan(Kind::kConstant, 1, 0), 1), 1e-3);
}

TEST(LearningRate, IsFiniteAndWithinBoundsEverywhere) {
  for (const Kind kind : {Kind::kWsd, Kind::kCosine, Kind::kConstant}) {
    for (int64_t steps = 1; steps <= 12; ++steps) {
      for (int64_t warmup = 0; warmup < steps; ++warmup) {
        const RunSpec spec = Plan(kind, steps, warmup, steps - warmup);
        for (int64_t step = 1; step <= steps; ++step) {
          const double rate = LearningRate(spec, step);
          ASSERT_TRUE(rate > 0 && rate <= 1e-3) << rate;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::engine
