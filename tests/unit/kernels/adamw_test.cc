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

AdamW Settings() {
  return {.master = nullptr,
          .gradient = nullptr,
          .exp_avg = nullptr,
          .exp_avg_sq = nullptr,
          .count = 0,
          .gradient_scale = 0.37,
          .learning_rate = 3e-3,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .correction1 = 1 - std::pow(0.9, 3),
          .correction2 = 1 - std::pow(0.95, 3)};
}

State Apply(const State& before, const std::vector<float>& gradient, AdamW op, int threads = 2) {
  Device device(threads);
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
BoundShare Share(const State& before, const std::vector<float>& gradient, const AdamW& op,
                 const State& after, double decay) {
  BoundShare share;
  const auto bound = [](double x) { return std::ldexp(std::fabs(x), -23) + std::ldexp(1, -149); };
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = static_cast<double>(gradient[i]) * op.gradient_scale;
    const double m = op.beta1 * static_cast<double>(before.exp_avg[i]) + (1 - op.beta1) * g;
    const double v = op.beta2 * static_cast<double>(before.exp_avg_sq[i]) + (1 - op.beta2) * g * g;
    const double x =
        static_cast<double>(before.master[i]) * (1 - op.learning_rate * decay) -
        op.learning_rate * (m / op.correction1) / (std::sqrt(v / op.correction2) + op.epsilon);
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
    const State after = Apply(before, gradient, Settings());
    EXPECT_TRUE(Share(before, gradient, Settings(), after, 0.1).Holds("state"));
    EXPECT_GT(Share(before, gradient, Settings(), after, 0.0).largest(), 1);
  }
}

TEST(AdamW, AZeroGradientAndZeroStateOnlyDecays) {
  const State before = {{2.0f}, {0.0f}, {0.0f}};
  const State after = Apply(before, {0.0f}, Settings());
  EXPECT_EQ(after.exp_avg[0], 0.0f);
  EXPECT_EQ(after.master[0], static_cast<float>(2.0 * (1 - 3e-3 * 0.1)));
}

TEST_P(AdamWOn, NaNStaysInItsElement) {
  const State before = Initial(40);
  std::vector<float> gradient = testing_support::Normal(40, 4);
  const State clean = Apply(before, gradient, Settings());
  gradient[17] = std::numeric_limits<float>::quiet_NaN();
  const State after = Apply(before, gradient, Settings());
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
  const State one = Apply(before, gradient, Settings(), 1);
  EXPECT_EQ(one, Apply(before, gradient, Settings(), 3));
  cpu::UseInstructionSet(cpu::InstructionSet::kBaseline);
  EXPECT_EQ(one, Apply(before, gradient, Settings(), 1));
}

TEST(AdamW, RefusesStepZero) {
  Device device;
  AdamW op = Settings();
  op.correction1 = 0;
  EXPECT_EQ(device->Run(op).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace octavo::kernels
