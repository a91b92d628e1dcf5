// Tiny models of every family against losses, logits and gradients of transformers; bands as the
// goldens' README states them.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "tests/golden/engine/golden_model.h"

namespace octavo::testing_support {
namespace {

using engine::RecipeSpec;

class GoldenModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return GoldenFolder(std::string("models/") + GetParam()); }
};

#define SKIP_WITHOUT_FOLDER() OCTAVO_SKIP_WITHOUT_GOLDEN(std::string("models/") + GetParam())

Model MakeModel(const GoldenModel& golden, RecipeSpec::Precision precision) {
  return Model({.config = golden.config,
                .recipe = {.precision = precision, .keep_bf16 = {}},
                .max_tokens = golden.batch.tokens()},
               golden.weights);
}

double MeanLoss(const engine::LossSum& loss) { return loss.sum / static_cast<double>(loss.tokens); }

TEST_P(GoldenModelTest, BothSpellingsOfItsConfigurationMeanTheSame) {
  SKIP_WITHOUT_FOLDER();
  std::ifstream file(folder() + "/config.new.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const absl::StatusOr<engine::ModelConfig> spelled_new = engine::ParseModelConfig(text);
  const absl::StatusOr<engine::ModelConfig> spelled_old = engine::ReadModelConfig(folder());
  ASSERT_TRUE(spelled_new.ok()) << spelled_new.status();
  ASSERT_TRUE(spelled_old.ok()) << spelled_old.status();
  EXPECT_EQ(spelled_new->rope, spelled_old->rope);
  EXPECT_EQ(spelled_new->sliding_window, spelled_old->sliding_window);
  EXPECT_EQ(spelled_new->rms_norm_epsilon, spelled_old->rms_norm_epsilon);
  EXPECT_EQ(spelled_new->shape.head_dim, spelled_old->shape.head_dim);
  EXPECT_EQ(spelled_new->shape.tied, spelled_old->shape.tied);
}

TEST_P(GoldenModelTest, HasTheParametersThatItsShapeImplies) {
  SKIP_WITHOUT_FOLDER();
  const GoldenModel golden(folder());
  const engine::ParameterLayout layout = engine::LayOutParameters(golden.config.shape);
  EXPECT_EQ(layout.parameter_count, golden.summary.at("parameters").get<int64_t>());
  EXPECT_EQ(layout.parameters.size(), golden.weights.size());
  for (const engine::ParameterSpec& parameter : layout.parameters) {
    ASSERT_EQ(golden.weights.count(parameter.name), 1u) << parameter.name;
    EXPECT_EQ(static_cast<int64_t>(golden.weights.at(parameter.name).size()), parameter.count());
  }
}

// Judges our judge: the float64 model of tests/support against FP32.
TEST_P(GoldenModelTest, ReferenceModelAgrees) {
  SKIP_WITHOUT_FOLDER();
  const GoldenModel golden(folder());
  ReferenceModel reference(golden.config, golden.weights);
  const double targets = golden.Number("target_tokens");
  EXPECT_EQ(static_cast<double>(CountTargets(golden.batch)), targets);
  const double loss = reference.Forward(golden.batch) / targets;
  reference.Backward(1 / targets);
  EXPECT_NEAR(loss, golden.Number("loss_fp32"), 2e-6 * loss);
  EXPECT_LT(RelativeError(reference.logits(), Widen(golden.tensors.at("logits"))), 2e-5);
  for (const auto& [name, gradient] : reference.gradients()) {
    EXPECT_LT(RelativeError(gradient, golden.Gradient(name)), 2e-5) << name;
  }
}

TEST_P(GoldenModelTest, Bf16StaysWithinItsBand) {
  SKIP_WITHOUT_FOLDER();
  const GoldenModel golden(folder());
  Model model = MakeModel(golden, RecipeSpec::Precision::kBf16);
  const engine::LossSum loss = model.Train(golden.batch, 1 / golden.Number("target_tokens"));
  const double expected = golden.Number("loss_fp32");
  EXPECT_NEAR(MeanLoss(loss), expected, 1e-3 * expected);
  for (const auto& [name, gradient] : model.Gradients()) {
    EXPECT_LT(RelativeError(gradient, golden.Gradient(name)),
              1.6 * golden.ListedError(name, "bf16"))
        << name;
  }
}

TEST_P(GoldenModelTest, Fp8StaysWithinItsBand) {
  SKIP_WITHOUT_FOLDER();
  const GoldenModel golden(folder());
  Model model = MakeModel(golden, RecipeSpec::Precision::kFp8);
  model.Train(golden.batch, 1 / golden.Number("target_tokens"));
  for (const auto& [name, gradient] : model.Gradients()) {
    const double ratio =
        RelativeError(gradient, golden.Gradient(name)) / golden.ListedError(name, "fp8_in_bf16");
    EXPECT_GT(ratio, golden.is_matrix(name) ? 0.75 : 0.55) << name;
    EXPECT_LT(ratio, golden.is_matrix(name) ? 1.35 : 1.8) << name;
  }
}

TEST_P(GoldenModelTest, LogitsAreAsFarOffAsEachPrecisionCosts) {
  SKIP_WITHOUT_FOLDER();
  const GoldenModel golden(folder());
  Model model = MakeModel(golden, RecipeSpec::Precision::kFp8);
  std::vector<int64_t> every_token(golden.batch.tokens());
  for (size_t i = 0; i < every_token.size(); ++i) every_token[i] = static_cast<int64_t>(i);
  const Values expected = Widen(golden.tensors.at("logits"));
  const auto error = [&](RecipeSpec::Precision precision) {
    const std::vector<float> logits = model.Logits(golden.batch, every_token, precision);
    return RelativeError(Values(logits.begin(), logits.end()), expected);
  };
  const nlohmann::json& listed = golden.summary.at("logits_relative_error");
  EXPECT_LT(error(RecipeSpec::Precision::kBf16), 1.6 * listed.at("bf16").get<double>());
  const double ratio = error(RecipeSpec::Precision::kFp8) / listed.at("fp8_in_bf16").get<double>();
  EXPECT_GT(ratio, 0.75);
  EXPECT_LT(ratio, 1.35);
}

constexpr const char* kFamilies[] = {"qwen2",   "qwen3",   "llama2",           "llama3",
                                     "smollm2", "mistral", "qwen2.5-tied-yarn"};

TEST(GoldenModels, HoldSomethingToCompare) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("models");
  EXPECT_TRUE(std::any_of(std::begin(kFamilies), std::end(kFamilies), [](const char* family) {
    return std::filesystem::exists(GoldenFolder(std::string("models/") + family));
  })) << GoldenFolder("models");
}

INSTANTIATE_TEST_SUITE_P(Family, GoldenModelTest, ::testing::ValuesIn(kFamilies),
                         [](const auto& family) {
                           std::string name = family.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// Two documents a row, cut at `cuts`; they share nothing and no target crosses their border.
engine::Batch PackedBatch(const GoldenModel& golden, const std::vector<int32_t>& cuts) {
  engine::Batch batch = golden.batch;
  const int64_t pieces = static_cast<int64_t>(cuts.size()) / batch.rows - 1;
  for (int64_t row = 0; row < batch.rows; ++row) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int32_t* const cut = &cuts[row * (pieces + 1) + piece];
      const int64_t start = row * batch.sequence + cut[0];
      const int64_t end = row * batch.sequence + cut[1];
      for (int64_t i = start; i < end; ++i) {
        batch.positions[i] = static_cast<int32_t>(i - start);
        batch.attend_from[i] = static_cast<int32_t>(start);
      }
      batch.targets[end - 1] = engine::kMasked;
    }
  }
  return batch;
}

TEST(GoldenPackedDocuments, AreIsolatedFromEachOther) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("models/qwen2/packed.safetensors");
  const GoldenModel golden(GoldenFolder("models/qwen2"));
  const Safetensors packed(GoldenFolder("models/qwen2/packed.safetensors"));
  const engine::Batch batch = PackedBatch(golden, packed.at("cuts").As<int32_t>());
  const nlohmann::json& summary = golden.summary.at("packed");
  const double targets = summary.at("target_tokens").get<double>();
  const double expected = summary.at("loss_fp32").get<double>();

  ReferenceModel reference(golden.config, golden.weights);
  EXPECT_NEAR(reference.Forward(batch) / targets, expected, 2e-6 * expected);
  Model model = MakeModel(golden, RecipeSpec::Precision::kBf16);
  const engine::LossSum loss = model.Train(batch, 1 / targets);
  EXPECT_EQ(static_cast<double>(loss.tokens), targets);
  EXPECT_NEAR(MeanLoss(loss), expected, 1e-3 * expected);
  for (const auto& [name, gradient] : model.Gradients()) {
    // The listed BF16 error is that of unpacked rows, which this one resembles.
    EXPECT_LT(RelativeError(gradient, Widen(packed.at("grad." + name))),
              1.6 * golden.ListedError(name, "bf16"))
        << name;
  }
}

}  // namespace
}  // namespace octavo::testing_support
