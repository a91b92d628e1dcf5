// The real SmolLM2-135M: its loss and gradient norm in both precisions. The model's folder is named
// by OCTAVO_SMOLLM2.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/golden/engine/golden_model.h"

namespace octavo::testing_support {
namespace {

using engine::RecipeSpec;

struct Measured {
  double loss;
  double gradient_norm;
};

Measured TrainOnce(const std::string& folder, const nlohmann::json& summary,
                   RecipeSpec::Precision precision) {
  const Safetensors tensors(GoldenFolder("smollm2/golden.safetensors"));
  const std::vector<int32_t> ids = tensors.at("input_ids").As<int32_t>();
  const engine::Batch batch = BatchOf(ids, ids, /*rows=*/1);
  const double targets = summary.at("target_tokens").get<double>();
  Model model({.config = *engine::ReadModelConfig(folder),
               .recipe = {.precision = precision, .keep_bf16 = {}},
               .max_tokens = batch.tokens()},
              ReadWeights(folder + "/model.safetensors"));
  const engine::LossSum loss = model.Train(batch, 1 / targets);
  EXPECT_EQ(static_cast<double>(loss.tokens), targets);
  return {loss.sum / targets, GlobalNorm(model.Gradients())};
}

#define SKIP_WITHOUT_SMOLLM2()                                                            \
  OCTAVO_SKIP_WITHOUT_GOLDEN("smollm2");                                                  \
  const char* const folder = std::getenv("OCTAVO_SMOLLM2");                               \
  if (folder == nullptr) GTEST_SKIP() << "skipped: OCTAVO_SMOLLM2 names no model folder"; \
  const nlohmann::json summary = ReadJson(GoldenFolder("smollm2/golden.json"))

TEST(SmolLm2, Bf16LossAndGradientNormAreThoseOfFp32) {
  SKIP_WITHOUT_SMOLLM2();
  const Measured measured = TrainOnce(folder, summary, RecipeSpec::Precision::kBf16);
  const double norm = summary.at("gradient_norm_fp32").get<double>();
  EXPECT_NEAR(measured.loss, summary.at("loss_fp32").get<double>(), 0.005);
  EXPECT_NEAR(measured.gradient_norm, norm, 0.02 * norm);
}

TEST(SmolLm2, Fp8LossAndGradientNormAreThoseOfTheEmulatedRecipe) {
  SKIP_WITHOUT_SMOLLM2();
  const Measured measured = TrainOnce(folder, summary, RecipeSpec::Precision::kFp8);
  const double norm = summary.at("gradient_norm_fp8_in_bf16").get<double>();
  EXPECT_NEAR(measured.loss, summary.at("loss_fp8_in_bf16").get<double>(), 0.02);
  EXPECT_NEAR(measured.gradient_norm, norm, 0.05 * norm);
}

}  // namespace
}  // namespace octavo::testing_support
