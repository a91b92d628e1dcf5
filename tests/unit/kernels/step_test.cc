// What decides whether a step is applied, against its formula.
#include "kernels/ops/step.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/device.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

using testing_support::Device;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

LossTotal Add(const std::vector<float>& loss, const std::vector<int32_t>& targets,
              LossTotal before) {
  Device device;
  LossTotal* const total = device.Put<LossTotal>({before});
  EXPECT_TRUE(device
                  ->Run(AddLosses{.loss = device.Put(loss),
                                  .targets = device.Put(targets),
                                  .tokens = static_cast<int64_t>(loss.size()),
                                  .total = total})
                  .ok());
  return device.Get(total, 1)[0];
}

// In float64 and in order: the sum is the same bits whoever adds.
TEST(AddLosses, SumsABatchInOrderBeforeItMeetsTheTotal) {
  const std::vector<float> loss = testing_support::Normal(1001, 1, 1e3f);
  double want = 0;
  for (const float value : loss) want += static_cast<double>(value);
  const std::vector<int32_t> targets(1001, 5);
  constexpr double kBefore = 1e12 / 3;
  EXPECT_EQ(Add(loss, targets, {.sum = kBefore, .tokens = 7}).sum, kBefore + want);
  double other = kBefore;
  for (const float value : loss) other += static_cast<double>(value);
  EXPECT_NE(kBefore + want, other) << "the numbers do not tell the two orders apart";
}

TEST(AddLosses, CountsTargetsThatAreTrainedOn) {
  EXPECT_EQ(Add({1, 0, 2, 0}, {0, -100, 47, -1}, {.sum = 0, .tokens = 7}).tokens, 9);
}

StepState Ready() {
  return {.applied_updates = 3,
          .learning_rate = 0.5,
          .loss = {.sum = 20, .tokens = 10},
          .first_loss = {.sum = 0, .tokens = 0},
          .gradient_sum_of_squares = 16,
          .apply = 9,
          .gradient_norm = -1,
          .gradient_scale = -1,
          .correction1 = -1,
          .correction2 = -1};
}

StepState Decide(const StepState& before, const std::vector<uint64_t>& counters,
                 double clip_norm = 1) {
  Device device;
  StepState* const state = device.Put<StepState>({before});
  EXPECT_TRUE(device
                  ->Run(DecideStep{.nonfinite = device.Put(counters),
                                   .counters = static_cast<int64_t>(counters.size()),
                                   .state = state,
                                   .clip_norm = clip_norm,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95})
                  .ok());
  return device.Get(state, 1)[0];
}

TEST(DecideStep, AppliesAHealthyStepAndCountsIt) {
  const StepState state = Decide(Ready(), {0, 0, 0});
  EXPECT_EQ(state.apply, 1);
  EXPECT_EQ(state.applied_updates, 4);
  EXPECT_EQ(state.gradient_norm, 4);
  EXPECT_EQ(state.gradient_scale, 1 / (4 + 1e-6));
  EXPECT_EQ(state.correction1, 1 - std::pow(0.9, 4));
  EXPECT_EQ(state.correction2, 1 - std::pow(0.95, 4));
  EXPECT_EQ(state.learning_rate, 0.5);
}

TEST(DecideStep, ClipsOnlyWhatIsAboveTheLimit) {
  EXPECT_EQ(Decide(Ready(), {0}, 4.5).gradient_scale, 1);
  EXPECT_EQ(Decide(Ready(), {0}, 0).gradient_scale, 1);
  EXPECT_EQ(Decide(Ready(), {0}, 2).gradient_scale, 2 / (4 + 1e-6));
}

void ExpectRefused(const StepState& before, const std::vector<uint64_t>& counters) {
  const StepState state = Decide(before, counters);
  EXPECT_EQ(state.apply, 0);
  EXPECT_EQ(state.applied_updates, 3);
}

TEST(DecideStep, RefusesWhatIsNotFiniteHasNoTargetsOrWasCounted) {
  StepState state = Ready();
  state.loss.tokens = 0;
  ExpectRefused(state, {0});
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    state = Ready();
    state.loss.sum = bad;
    ExpectRefused(state, {0});
    state = Ready();
    state.gradient_sum_of_squares = bad;
    ExpectRefused(state, {0});
  }
  ExpectRefused(Ready(), {0, 0, 1});
  ExpectRefused(Ready(), {uint64_t{1} << 32, 0, 0});
}

TEST(DecideStep, RefusesABetaThatLeavesNoCorrection) {
  Device device;
  DecideStep op = {.nonfinite = nullptr,
                   .counters = 0,
                   .state = device.Put<StepState>({Ready()}),
                   .clip_norm = 1,
                   .beta1 = 1,
                   .beta2 = 0.9};
  EXPECT_EQ(device->Run(op).message(),
            "DecideStep: beta1 is 1, must be in [0, 1): corrections divide");
}

}  // namespace
}  // namespace octavo::kernels
