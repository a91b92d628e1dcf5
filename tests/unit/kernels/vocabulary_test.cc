// Embedding and cross-entropy against float64.
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

using ::testing::Each;
using testing_support::BoundShare;
using testing_support::Device;

TEST(EmbeddingForward, CopiesTheRowOfEachToken) {
  Device device;
  const auto table = testing_support::NormalBfloat16(7 * 33, 1);
  const std::vector<int32_t> ids = {6, 0, 3, 3};
  bfloat16* const y = device.Make<bfloat16>(4 * 33);
  ASSERT_TRUE(device
                  ->Run(EmbeddingForward{.table = device.Put(table),
                                         .ids = device.Put(ids),
                                         .y = y,
                                         .tokens = 4,
                                         .columns = 33})
                  .ok());
  std::vector<bfloat16> want;
  for (const int32_t id : ids)
    want.insert(want.end(), table.begin() + id * 33, table.begin() + (id + 1) * 33);
  EXPECT_EQ(testing_support::Bits(device.Get(y, 4 * 33)), testing_support::Bits(want));
}

class VocabularyOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(VocabularyOn);

TEST_P(VocabularyOn, EmbeddingBackwardAddsTokensOfOneIdInOrder) {
  for (const int64_t columns : {1, 33, 129}) {
    Device device(3);
    const std::vector<int32_t> ids = {2, 0, 2, 2, 4, 0};
    const auto dy = testing_support::NormalBfloat16(6 * columns, 1);
    std::vector<float> want = testing_support::Normal(5 * columns, 2);
    float* const dtable = device.Put(want);
    ASSERT_TRUE(device
                    ->Run(EmbeddingBackward{.dy = device.Put(dy),
                                            .ids = device.Put(ids),
                                            .dtable = dtable,
                                            .tokens = 6,
                                            .columns = columns,
                                            .vocabulary = 5})
                    .ok());
    for (size_t t = 0; t < ids.size(); ++t) {
      for (int64_t c = 0; c < columns; ++c)
        want[static_cast<size_t>(ids[t] * columns + c)] +=
            ToFloat(dy[t * static_cast<size_t>(columns) + static_cast<size_t>(c)]);
    }
    EXPECT_EQ(device.Get(dtable, 5 * columns), want);
  }
}

TEST(EmbeddingBackward, NamesAnIdBeyondTheVocabulary) {
  Device device;
  EXPECT_EQ(device
                ->Run(EmbeddingBackward{.dy = device.Put(testing_support::NormalBfloat16(2, 1)),
                                        .ids = device.Put<int32_t>({0, 5}),
                                        .dtable = device.Make<float>(5),
                                        .tokens = 2,
                                        .columns = 1,
                                        .vocabulary = 5})
                .message(),
            "EmbeddingBackward: id of token 1 is 5, must be in [0, 5)");
}

struct Loss {
  std::vector<float> loss;
  std::vector<bfloat16> logits;
};

Loss Compute(const std::vector<bfloat16>& logits, const std::vector<int32_t>& targets,
             float gradient_scale, bool write_gradient = true) {
  Device device;
  const auto count = static_cast<int64_t>(logits.size());
  const auto tokens = static_cast<int64_t>(targets.size());
  bfloat16* const in_place = device.Put(logits);
  float* const loss = device.Make<float>(tokens);
  EXPECT_TRUE(device
                  ->Run(CrossEntropy{.logits = in_place,
                                     .targets = device.Put(targets),
                                     .loss = loss,
                                     .tokens = tokens,
                                     .vocabulary = count / tokens,
                                     .write_gradient = write_gradient,
                                     .gradient_scale = gradient_scale})
                  .ok());
  return {device.Get(loss, tokens), device.Get(in_place, count)};
}

struct Reference {
  double loss;
  std::vector<double> gradient;
};

Reference Exact(const std::vector<double>& logits, size_t target, double scale) {
  double largest = logits[0];
  for (const double logit : logits) largest = std::fmax(largest, logit);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double log_sum_exp = largest + std::log(sum);
  Reference result = {.loss = log_sum_exp - logits[target], .gradient = {}};
  for (size_t v = 0; v < logits.size(); ++v)
    result.gradient.push_back((std::exp(logits[v] - log_sum_exp) - (v == target ? 1 : 0)) * scale);
  return result;
}

TEST(CrossEntropy, TheReferenceAgreesWithDifferences) {
  const std::vector<double> logits = {0.3, -2, 1.5, 4, 0};
  const Reference exact = Exact(logits, 2, 1);
  for (size_t v = 0; v < logits.size(); ++v) {
    std::vector<double> up = logits;
    std::vector<double> down = logits;
    up[v] += 1e-5;
    down[v] -= 1e-5;
    EXPECT_NEAR((Exact(up, 2, 1).loss - Exact(down, 2, 1).loss) / 2e-5, exact.gradient[v], 1e-9);
  }
}

TEST_P(VocabularyOn, CrossEntropyLossAndGradientStayWithinTheirBounds) {
  constexpr float kScale = 1.0f / 37;
  for (const size_t vocabulary : {1u, 31u, 33u, 129u, 5000u}) {
    for (const float deviation : {1.0f, 30.0f}) {
      const auto tokens = size_t{3};
      const auto logits =
          testing_support::NormalBfloat16(static_cast<int64_t>(tokens * vocabulary), 1, deviation);
      const std::vector<int32_t> targets = {0, static_cast<int32_t>(vocabulary) - 1,
                                            static_cast<int32_t>(vocabulary / 2)};
      const Loss got = Compute(logits, targets, kScale);
      const std::vector<double> wide = testing_support::ToDouble(logits);
      BoundShare loss_share;
      BoundShare gradient_share;
      BoundShare unscaled;
      for (size_t t = 0; t < tokens; ++t) {
        const auto row = wide.begin() + static_cast<int64_t>(t * vocabulary);
        const Reference want = Exact({row, row + static_cast<int64_t>(vocabulary)},
                                     static_cast<size_t>(targets[t]), static_cast<double>(kScale));
        loss_share.Add(static_cast<double>(got.loss[t]), want.loss,
                       std::ldexp(1 + std::fabs(want.loss), -21));
        for (size_t v = 0; v < vocabulary; ++v) {
          const double gradient = static_cast<double>(ToFloat(got.logits[t * vocabulary + v]));
          const double exact = want.gradient[v];
          const double bound = std::ldexp(std::fabs(exact), -8) + std::ldexp(1, -28);
          gradient_share.Add(gradient, exact, bound);
          unscaled.Add(gradient, exact * 1.02, bound);
        }
      }
      EXPECT_TRUE(loss_share.Holds("loss"));
      EXPECT_TRUE(gradient_share.Holds("gradient"));
      if (vocabulary > 1) {
        EXPECT_GT(unscaled.largest(), 1);
      }
    }
  }
}

TEST_P(VocabularyOn, CrossEntropyMaskedTokensHaveNoLossAndNoGradient) {
  auto logits = testing_support::NormalBfloat16(2 * 40, 1);
  logits[3] = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
  const Loss got = Compute(logits, {-100, 5}, 1.0f);
  EXPECT_EQ(got.loss[0], 0.0f);
  EXPECT_GT(got.loss[1], 0.0f);
  const std::vector<uint16_t> bits = testing_support::Bits(got.logits);
  EXPECT_THAT(std::vector<uint16_t>(bits.begin(), bits.begin() + 40), Each(0));
}

TEST(CrossEntropy, WithoutGradientTheLogitsStay) {
  const auto logits = testing_support::NormalBfloat16(2 * 40, 1);
  EXPECT_EQ(testing_support::Bits(Compute(logits, {1, 2}, 1.0f, false).logits),
            testing_support::Bits(logits));
}

TEST_P(VocabularyOn, CrossEntropyANearCertainTargetKeepsASmallLoss) {
  const Loss got = Compute(testing_support::ToBfloat16({100.0f, 90.0f, 80.0f}), {0}, 1.0f);
  EXPECT_NEAR(static_cast<double>(got.loss[0]), std::log1p(std::exp(-10.0) + std::exp(-20.0)),
              1e-7);
}

TEST_P(VocabularyOn, CrossEntropyNaNInALogitMakesTheLossNaN) {
  const Loss got =
      Compute(testing_support::ToBfloat16({1, std::numeric_limits<float>::quiet_NaN()}), {0}, 1.0f);
  EXPECT_TRUE(std::isnan(got.loss[0]));
}

TEST(CrossEntropy, NamesATargetBeyondTheVocabulary) {
  Device device;
  EXPECT_EQ(device
                ->Run(CrossEntropy{.logits = device.Put(testing_support::NormalBfloat16(4, 1)),
                                   .targets = device.Put<int32_t>({1, 2}),
                                   .loss = device.Make<float>(2),
                                   .tokens = 2,
                                   .vocabulary = 2,
                                   .write_gradient = true,
                                   .gradient_scale = 1.0f})
                .message(),
            "CrossEntropy: target of token 1 is 2, must be below 2");
}

}  // namespace
}  // namespace octavo::kernels
