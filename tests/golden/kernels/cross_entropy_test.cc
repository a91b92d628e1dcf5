// Cross-entropy against the goldens in optimizer/. Our logits are BF16, so the golden's tolerances
// hold for the case whose logits are BF16 numbers; in the others a logit moves by up to 2^-8 of
// itself, and a loss by twice the row's largest move.
#include <cmath>
#include <limits>

#include "kernels/backend.h"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/golden.h"
#include "tests/support/numbers.h"
#include "tests/support/safetensors.h"

namespace octavo {
namespace {

using kernels::bfloat16;
using testing_support::BoundShare;
using testing_support::Device;
using testing_support::Safetensors;

class CrossEntropyGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OCTAVO_SKIP_WITHOUT_GOLDEN("optimizer/cross_entropy.safetensors");
    const Safetensors file(testing_support::GoldenFolder("optimizer/cross_entropy.safetensors"));
    const std::string name = GetParam();
    logits_ = file.at(name + "/logits").As<float>();
    for (const int64_t target : file.at(name + "/targets").As<int64_t>())
      targets_.push_back(static_cast<int32_t>(target));
    row_loss_ = file.at(name + "/row_loss").As<double>();
    gradient_ = file.at(name + "/d_logits").As<float>();
    vocabulary_ = static_cast<int64_t>(logits_.size() / targets_.size());
    Compute();
  }

  void Compute() {
    Device device;
    const auto tokens = static_cast<int64_t>(targets_.size());
    const auto count = static_cast<int64_t>(logits_.size());
    bfloat16* const in_place = device.Put(testing_support::ToBfloat16(logits_));
    float* const loss = device.Make<float>(tokens);
    ASSERT_TRUE(device
                    ->Run(kernels::CrossEntropy{.logits = in_place,
                                                .targets = device.Put(targets_),
                                                .loss = loss,
                                                .tokens = tokens,
                                                .vocabulary = vocabulary_,
                                                .write_gradient = true,
                                                .gradient_scale = 1.0f})
                    .ok());
    got_loss_ = device.Get(loss, tokens);
    got_gradient_ = testing_support::ToDouble(device.Get(in_place, count));
  }

  // The largest move of a logit of `row` by its rounding to BF16.
  double LargestMove(size_t row) const {
    double largest = 0;
    for (size_t v = 0; v < static_cast<size_t>(vocabulary_); ++v) {
      const float logit = logits_[row * static_cast<size_t>(vocabulary_) + v];
      if (!std::isfinite(logit)) continue;
      largest =
          std::fmax(largest, std::fabs(static_cast<double>(logit) -
                                       static_cast<double>(ToFloat(kernels::ToBfloat16(logit)))));
    }
    return largest;
  }

  std::vector<float> logits_;
  std::vector<int32_t> targets_;
  std::vector<double> row_loss_;
  std::vector<float> gradient_;
  std::vector<float> got_loss_;
  std::vector<double> got_gradient_;
  int64_t vocabulary_ = 1;
};

TEST_P(CrossEntropyGolden, LossesStayWithinTheGoldensToleranceOfTheRoundedLogits) {
  BoundShare share;
  for (size_t row = 0; row < row_loss_.size(); ++row) {
    share.Add(static_cast<double>(got_loss_[row]), row_loss_[row],
              1e-6 * std::fmax(1, row_loss_[row]) + 2 * LargestMove(row));
  }
  EXPECT_TRUE(share.Holds("row_loss"));
}

// A probability moves by at most e^(2 move) - 1 of itself, and is rounded to BF16.
TEST_P(CrossEntropyGolden, GradientsFollowTheRoundedLogits) {
  BoundShare share;
  for (size_t i = 0; i < gradient_.size(); ++i) {
    const double want = static_cast<double>(gradient_[i]);
    const double move = std::expm1(2 * LargestMove(i / static_cast<size_t>(vocabulary_)));
    share.Add(got_gradient_[i], want, 3e-7 + std::ldexp(std::fabs(want), -8) + std::fmin(move, 2));
  }
  EXPECT_TRUE(share.Holds("d_logits"));
}

TEST_P(CrossEntropyGolden, MaskedRowsAndInfinitelyUnlikelyColumnsHaveNoGradient) {
  for (size_t i = 0; i < gradient_.size(); ++i) {
    const bool masked = targets_[i / static_cast<size_t>(vocabulary_)] < 0;
    if (masked || std::isinf(logits_[i])) {
      ASSERT_EQ(got_gradient_[i], 0.0) << i;
    }
    ASSERT_TRUE(std::isfinite(got_gradient_[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizer, CrossEntropyGolden,
                         ::testing::Values("ordinary", "large_magnitude", "huge", "all_masked",
                                           "one_row_trained", "minus_inf_columns",
                                           "bf16_valued_logits"));

}  // namespace
}  // namespace octavo
