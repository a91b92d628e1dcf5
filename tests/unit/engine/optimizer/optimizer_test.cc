#include "worker/engine/optimizer/optimizer.h"

#include <cmath>
#include <memory>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kernels/numerics/bfloat16.h"

namespace octavo::engine {
namespace {

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
  Optimizer optimizer = *Optimizer::Create({.weight_decay = 0.25}, backend_.get());
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(optimizer.Apply(*parameters_, 0, 0.125).ok());
  }
  EXPECT_NEAR(Matrix(), std::pow(1 - 0.125 * 0.25, 2), 1e-7);
  EXPECT_EQ(Norm(), 1.0f);
}

// A BF16 weight would stay at 1 for ever: the updates are below half of its last place.
TEST_F(OptimizerTest, SumsUpdatesThatBfloat16WouldLose) {
  Optimizer optimizer = *Optimizer::Create({.weight_decay = 0, .clip_norm = 0}, backend_.get());
  Store(parameters_->gradient(), 1.0f);
  kernels::bfloat16 lossy = kernels::ToBfloat16(1.0f);
  for (int step = 0; step < 100; ++step) {
    ASSERT_TRUE(optimizer.Apply(*parameters_, 3, 1e-4).ok());
    lossy = kernels::ToBfloat16(kernels::ToFloat(lossy) - 1e-4f);
  }
  EXPECT_NEAR(Matrix(), 0.99, 1e-5);
  EXPECT_NEAR(Norm(), 0.99, 1e-5);
  EXPECT_EQ(kernels::ToFloat(lossy), 1.0f);
}

TEST_F(OptimizerTest, TheNormCoversAllParametersBeforeClipping) {
  Optimizer optimizer = *Optimizer::Create({}, backend_.get());
  Store(parameters_->gradient(), 2.0f);
  EXPECT_DOUBLE_EQ(*optimizer.GradientNorm(*parameters_), 6.0);
  EXPECT_DOUBLE_EQ(*optimizer.GradientNorm(*parameters_),
                   6.0);  // nothing is left from the call before
}

// The first update of Adam is lr * sign(gradient) whatever its size, so clipping shows in the
// second moment only.
TEST_F(OptimizerTest, ClipsToTheLimitByTheGlobalNorm) {
  const OptimizerPlan plan = {.beta2 = 0.5, .weight_decay = 0, .clip_norm = 1.5};
  Optimizer optimizer = *Optimizer::Create(plan, backend_.get());
  Store(parameters_->gradient(), 2.0f);
  ASSERT_TRUE(optimizer.Apply(*parameters_, 6.0, 0.1).ok());
  float second_moment = 0;
  ASSERT_TRUE(backend_->CopyOut(&second_moment, parameters_->exp_avg_sq(), 4).ok());
  EXPECT_NEAR(second_moment, 0.5 * 0.5 * 0.5, 1e-6);
}

TEST(ClipCoefficient, LeavesSmallGradientsAlone) {
  EXPECT_EQ(ClipCoefficient(0.5, 1), 1);
  EXPECT_EQ(ClipCoefficient(0, 1), 1);
  EXPECT_DOUBLE_EQ(ClipCoefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(ClipCoefficient(4, 0), 1);
}

// After a resume the bias correction goes on where it was.
TEST_F(OptimizerTest, CountsAppliedUpdatesFromWhereItIsTold) {
  Optimizer fresh = *Optimizer::Create({.weight_decay = 0, .clip_norm = 0}, backend_.get());
  fresh.set_applied_updates(41);
  Store(parameters_->gradient(), 1.0f);
  ASSERT_TRUE(fresh.Apply(*parameters_, 3, 1.0).ok());
  EXPECT_EQ(fresh.applied_updates(), 42);
  const double m = 0.1 / (1 - std::pow(0.9, 42));
  const double v = 0.05 / (1 - std::pow(0.95, 42));
  EXPECT_NEAR(Matrix(), 1 - m / (std::sqrt(v) + 1e-8), 1e-6);
}

}  // namespace
}  // namespace octavo::engine
