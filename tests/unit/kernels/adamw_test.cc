// AdamW against the formula in float64: every state is one rounding away.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

using testing_support::BoundShare;
using testing_support::Device;

struct State {
  std::vector<float> master;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
  bool operator==(const State&) const = default;
};

State Initial(int64_t count) {
  State state = {testing_support::Normal(count, 1), testing_support::Normal(count, 2, 0.1f),
                 testing_support::Normal(count, 3, 0.01f)};
  for (float& value : state.exp_avg_sq) value = std::fabs(value);
  return state;
}

struct Settings {
  AdamW op;
  StepState state;
};

Settings Usual() {
  StepState state = {};
  state.apply = 1;
  state.learning_rate = 3e-3;
  state.gradient_scale = 0.37;
  state.correction1 = 1 - std::pow(0.9, 3);
  state.correction2 = 1 - std::pow(0.95, 3);
  AdamW op = {.master = nullptr,
              .gradient = nullptr,
              .exp_avg = nullptr,
              .exp_avg_sq = nullptr,
              .count = 0,
              .beta1 = 0.9,
              .beta2 = 0.95,
              .epsilon = 1e-8,
              .weight_decay = 0.1,
              .state = nullptr};
  return {.op = op, .state = state};
}

State Apply(const State& before, const std::vector<float>& gradient, const Settings& settings,
            int threads = 2) {
  Device device(threads);
  AdamW op = settings.op;
  op.state = device.Put<StepState>({settings.state});
  op.count = static_cast<int64_t>(gradient.size());
  op.master = device.Put(before.master);
  op.gradient = device.Put(gradient);
  op.exp_avg = device.Put(before.exp_avg);
  op.exp_avg_sq = device.Put(before.exp_avg_sq);
  EXPECT_TRUE(device->Run(op).ok());
  return {device.Get(op.master, op.count), device.Get(op.exp_avg, op.count),
          device.Get(op.exp_avg_sq, op.count)};
}

// The share of one rounding that each state uses; `decay` as the reference believes it.
BoundShare Share(const State& before, const std::vector<float>& gradient, const Settings& settings,
                 const State& after, double decay) {
  const AdamW& op = settings.op;
  const StepState& step = settings.state;
  BoundShare share;
  const auto bound = [](double x) { return std::ldexp(std::fabs(x), -23) + std::ldexp(1, -149); };
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = static_cast<double>(gradient[i]) * step.gradient_scale;
    const double m = op.beta1 * static_cast<double>(before.exp_avg[i]) + (1 - op.beta1) * g;
    const double v = op.beta2 * static_cast<double>(before.exp_avg_sq[i]) + (1 - op.beta2) * g * g;
    const double x = static_cast<double>(before.master[i]) * (1 - step.learning_rate * decay) -
                     step.learning_rate * (m / step.correction1) /
                         (std::sqrt(v / step.correction2) + op.epsilon);
    share.Add(static_cast<double>(after.exp_avg[i]), m, bound(m));
    share.Add(static_cast<double>(after.exp_avg_sq[i]), v, bound(v));
    share.Add(static_cast<double>(after.master[i]), x, bound(x));
  }
  return share;
}

class AdamWOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(AdamWOn);

TEST_P(AdamWOn, EveryStateIsTheFormulaRoundedOnce) {
  for (const int64_t count : {1, 31, 33, 129, 5000}) {
    const State before = Initial(count);
    const std::vector<float> gradient = testing_support::Normal(count, 4);
    const State after = Apply(before, gradient, Usual());
    EXPECT_TRUE(Share(before, gradient, Usual(), after, 0.1).Holds("state"));
    EXPECT_GT(Share(before, gradient, Usual(), after, 0.0).largest(), 1);
  }
}

TEST(AdamW, AZeroGradientAndZeroStateOnlyDecays) {
  const State before = {{2.0f}, {0.0f}, {0.0f}};
  const State after = Apply(before, {0.0f}, Usual());
  EXPECT_EQ(after.exp_avg[0], 0.0f);
  EXPECT_EQ(after.master[0], static_cast<float>(2.0 * (1 - 3e-3 * 0.1)));
}

TEST_P(AdamWOn, NaNStaysInItsElement) {
  const State before = Initial(40);
  std::vector<float> gradient = testing_support::Normal(40, 4);
  const State clean = Apply(before, gradient, Usual());
  gradient[17] = std::numeric_limits<float>::quiet_NaN();
  const State after = Apply(before, gradient, Usual());
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (i == 17) {
      EXPECT_TRUE(std::isnan(after.master[i]));
    } else {
      EXPECT_EQ(after.master[i], clean.master[i]);
    }
  }
}

TEST_P(AdamWOn, NeitherThreadsNorTheInstructionSetChangeTheBits) {
  const State before = Initial(10000);
  const std::vector<float> gradient = testing_support::Normal(10000, 4);
  const State one = Apply(before, gradient, Usual(), 1);
  EXPECT_EQ(one, Apply(before, gradient, Usual(), 3));
  cpu::UseInstructionSet(cpu::InstructionSet::kBaseline);
  EXPECT_EQ(one, Apply(before, gradient, Usual(), 1));
}

TEST(AdamW, ChangesNothingInAStepThatIsNotApplied) {
  const State before = Initial(5000);
  std::vector<float> gradient = testing_support::Normal(5000, 4);
  gradient[7] = std::numeric_limits<float>::infinity();
  Settings settings = Usual();
  settings.state = {};
  settings.state.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Apply(before, gradient, settings), before);
}

TEST(AdamW, RefusesToRunWithoutAState) {
  Device device;
  float* const array = device.Put<float>({1});
  AdamW op = Usual().op;
  op.master = op.exp_avg = op.exp_avg_sq = array;
  op.gradient = array;
  op.count = 1;
  EXPECT_EQ(device->Run(op).message(), "AdamW: state is null");
}

}  // namespace
}  // namespace octavo::kernels
