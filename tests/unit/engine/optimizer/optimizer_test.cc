#include "worker/engine/optimizer/optimizer.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kernels/numerics/bfloat16.h"
#include "tests/support/optimizer_step.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::OptimizerSteps;

// One matrix [2, 3] and one norm [3], all weights 1.
class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() : backend_(*kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = 1})) {
    layout_.parameters = {{.name = "w",
                           .module = "w",
                           .kind = ParameterKind::kLinear,
                           .rows = 2,
                           .columns = 3,
                           .offset = 0},
                          {.name = "n",
                           .module = "n",
                           .kind = ParameterKind::kNorm,
                           .rows = 1,
                           .columns = 3,
                           .offset = 64}};
    layout_.elements = 128;
    parameters_ = std::make_unique<Parameters>(*Parameters::Create(layout_, backend_.get()));
    Store(parameters_->master(), 1.0f);
  }

  // The same value in every element of both parameters.
  void Store(float* array, float value) {
    const std::vector<float> values(6, value);
    CHECK(backend_->CopyIn(array, values.data(), 24).ok());
    CHECK(backend_->CopyIn(array + 64, values.data(), 12).ok());
  }
  float Matrix() { return Element(0); }
  float Norm() { return Element(64); }
  float Element(int64_t index) {
    float value = 0;
    CHECK(backend_->CopyOut(&value, parameters_->master() + index, 4).ok());
    return value;
  }

  std::unique_ptr<kernels::Backend> backend_;
  ParameterLayout layout_;
  std::unique_ptr<Parameters> parameters_;
};

TEST_F(OptimizerTest, DecaysMatricesAndNothingElse) {
  OptimizerSteps optimizer({.weight_decay = 0.25}, layout_, backend_.get());
  for (int step = 0; step < 2; ++step) optimizer.Step(*parameters_, 0.125);
  EXPECT_NEAR(Matrix(), std::pow(1 - 0.125 * 0.25, 2), 1e-7);
  EXPECT_EQ(Norm(), 1.0f);
}

// A BF16 weight would stay at 1 for ever: the updates are below half of its last place.
TEST_F(OptimizerTest, SumsUpdatesThatBfloat16WouldLose) {
  OptimizerSteps optimizer({.weight_decay = 0, .clip_norm = 0}, layout_, backend_.get());
  Store(parameters_->gradient(), 1.0f);
  kernels::bfloat16 lossy = kernels::ToBfloat16(1.0f);
  for (int step = 0; step < 100; ++step) {
    optimizer.Step(*parameters_, 1e-4);
    lossy = kernels::ToBfloat16(kernels::ToFloat(lossy) - 1e-4f);
  }
  EXPECT_NEAR(Matrix(), 0.99, 1e-5);
  EXPECT_NEAR(Norm(), 0.99, 1e-5);
  EXPECT_EQ(kernels::ToFloat(lossy), 1.0f);
}

TEST_F(OptimizerTest, TheNormCoversAllParametersBeforeClipping) {
  OptimizerSteps optimizer({}, layout_, backend_.get());
  Store(parameters_->gradient(), 2.0f);
  EXPECT_DOUBLE_EQ(optimizer.Step(*parameters_, 0.1).gradient_norm, 6.0);
  // Nothing is left from the step before.
  EXPECT_DOUBLE_EQ(optimizer.Step(*parameters_, 0.1).gradient_norm, 6.0);
}

// The first update of Adam is lr * sign(gradient) whatever its size, so clipping shows in the
// second moment only.
TEST_F(OptimizerTest, ClipsToTheLimitByTheGlobalNorm) {
  const OptimizerSpec spec = {.beta2 = 0.5, .weight_decay = 0, .clip_norm = 1.5};
  OptimizerSteps optimizer(spec, layout_, backend_.get());
  Store(parameters_->gradient(), 2.0f);
  optimizer.Step(*parameters_, 0.1);
  float second_moment = 0;
  ASSERT_TRUE(backend_->CopyOut(&second_moment, parameters_->exp_avg_sq(), 4).ok());
  EXPECT_NEAR(second_moment, 0.5 * 0.5 * 0.5, 1e-6);
}

// After a resume the bias correction goes on where it was.
TEST_F(OptimizerTest, CountsAppliedUpdatesFromWhereItIsTold) {
  OptimizerSteps fresh({.weight_decay = 0, .clip_norm = 0}, layout_, backend_.get());
  ASSERT_TRUE(fresh.record().SetAppliedUpdates(41).ok());
  Store(parameters_->gradient(), 1.0f);
  EXPECT_EQ(fresh.Step(*parameters_, 1.0).applied_updates, 42);
  const double m = 0.1 / (1 - std::pow(0.9, 42));
  const double v = 0.05 / (1 - std::pow(0.95, 42));
  EXPECT_NEAR(Matrix(), 1 - m / (std::sqrt(v) + 1e-8), 1e-6);
}

TEST_F(OptimizerTest, AGradientThatIsNotFiniteLeavesNoTrace) {
  OptimizerSteps optimizer({}, layout_, backend_.get());
  Store(parameters_->gradient(), std::numeric_limits<float>::infinity());
  const kernels::StepState skipped = optimizer.Step(*parameters_, 0.1);
  EXPECT_EQ(skipped.apply, 0);
  EXPECT_EQ(skipped.applied_updates, 0);
  EXPECT_EQ(Matrix(), 1.0f);
  EXPECT_EQ(Norm(), 1.0f);
}

}  // namespace
}  // namespace octavo::engine
