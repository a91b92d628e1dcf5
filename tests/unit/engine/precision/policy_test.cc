#include "worker/engine/precision/policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

using ::testing::HasSubstr;

ParameterLayout TwelveLayers() {
  return LayOutParameters({.vocabulary = 16,
                           .hidden = 8,
                           .intermediate = 16,
                           .layers = 12,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 4});
}

PrecisionPolicy Fp8With(const RecipeSpec& recipe) {
  absl::StatusOr<PrecisionPolicy> policy = PrecisionPolicy::Create(recipe, TwelveLayers());
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

PrecisionPolicy Fp8Except(const std::vector<std::string>& patterns) {
  return Fp8With({.precision = RecipeSpec::Precision::kFp8, .keep_bf16 = patterns});
}

LinearPolicy Of(const PrecisionPolicy& policy, const std::string& module, int64_t step = 1) {
  for (const ParameterSpec& parameter : TwelveLayers().parameters) {
    if (parameter.module == module) return policy.At(step).At(parameter.module_index);
  }
  ADD_FAILURE() << module;
  return {};
}

constexpr GemmPrecision kBf16 = GemmPrecision::kBf16;
constexpr GemmPrecision kFp8 = GemmPrecision::kFp8;
const char kDown[] = "model.layers.7.mlp.down_proj";

TEST(PrecisionPolicy, MakesEveryLinearFp8AndNothingElse) {
  const PrecisionPolicy policy = Fp8Except({});
  for (const ParameterSpec& parameter : TwelveLayers().parameters) {
    EXPECT_EQ(policy.At(1).At(parameter.module_index),
              parameter.kind == ParameterKind::kLinear ? kFp8Policy : LinearPolicy())
        << parameter.name;
  }
  EXPECT_EQ(policy.linear_forms().size(), 12u * 7);
  EXPECT_TRUE(policy.At(1).any_fp8_forward());
}

TEST(PrecisionPolicy, KeepsOneLayerWithoutItsNamesakes) {
  const PrecisionPolicy policy = Fp8Except({"model.layers.1.*"});
  EXPECT_EQ(Of(policy, "model.layers.1.self_attn.q_proj"), LinearPolicy());
  EXPECT_EQ(Of(policy, "model.layers.1.mlp.down_proj"), LinearPolicy());
  EXPECT_EQ(Of(policy, "model.layers.11.mlp.down_proj"), kFp8Policy);
}

TEST(PrecisionPolicy, KeepsOneKindOfLinearInEveryLayer) {
  const PrecisionPolicy policy = Fp8Except({"*.down_proj", "model.layers.3.mlp.down_proj"});
  EXPECT_EQ(Of(policy, kDown), LinearPolicy());
  EXPECT_EQ(Of(policy, "model.layers.7.mlp.up_proj"), kFp8Policy);
}

TEST(PrecisionPolicy, ARuleChangesWhatItNamesAndALaterOneWins) {
  const PrecisionPolicy policy =
      Fp8With({.precision = RecipeSpec::Precision::kFp8,
               .keep_bf16 = {"*.down_proj"},
               .rules = {{.wgrad = kBf16, .gradient = kernels::Element::kE5M2},
                         {.modules = {"*.q_proj", "*.down_proj"}, .wgrad = kFp8}}});
  EXPECT_EQ(Of(policy, kDown), (LinearPolicy{kBf16, kBf16, kFp8, kernels::Element::kE5M2}));
  EXPECT_EQ(Of(policy, "model.layers.0.self_attn.q_proj"),
            (LinearPolicy{kFp8, kFp8, kFp8, kernels::Element::kE5M2}));
  EXPECT_EQ(Of(policy, "model.layers.0.mlp.up_proj"),
            (LinearPolicy{kFp8, kFp8, kBf16, kernels::Element::kE5M2}));
}

TEST(PrecisionPolicy, ARuleHoldsFromItsFirstStepThroughItsLast) {
  const PrecisionPolicy policy =
      Fp8With({.precision = RecipeSpec::Precision::kFp8,
               .keep_bf16 = {},
               .rules = {{.fprop = kBf16, .from_step = 5, .until_step = 9},
                         {.modules = {"*.down_proj"}, .dgrad = kBf16, .from_step = 9}}});
  for (const int64_t step : {1, 4, 10, 1000}) EXPECT_EQ(Of(policy, kDown, step).fprop, kFp8);
  for (const int64_t step : {5, 7, 9}) {
    EXPECT_EQ(Of(policy, kDown, step).fprop, kBf16);
    EXPECT_FALSE(policy.At(step).any_fp8_forward());
  }
  EXPECT_EQ(Of(policy, kDown, 8).dgrad, kFp8);
  EXPECT_EQ(Of(policy, kDown, 9).dgrad, kBf16);
  const LinearForms every = {.bf16_weight = true,
                             .fp8_weight = true,
                             .fp8_transposed_weight = true,
                             .bf16_input = false,
                             .fp8_input = true};
  EXPECT_EQ(policy.linear_forms()[6], every);
}

TEST(PrecisionPolicy, RefusesAPatternThatMatchesNothing) {
  for (const char* pattern : {"layers.0.*", "model.layers.12.*", "lm_head", ""}) {
    const absl::StatusOr<PrecisionPolicy> policy =
        PrecisionPolicy::Create({.keep_bf16 = {"*.up_proj", pattern}}, TwelveLayers());
    EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(policy.status().message()),
                HasSubstr("\"" + std::string(pattern) + "\""));
  }
}

TEST(PrecisionPolicy, RefusesARuleThatMatchesNothing) {
  const absl::StatusOr<PrecisionPolicy> policy = PrecisionPolicy::Create(
      {.keep_bf16 = {}, .rules = {{.fprop = kBf16}, {.modules = {"lm_head"}, .fprop = kBf16}}},
      TwelveLayers());
  EXPECT_THAT(std::string(policy.status().message()),
              HasSubstr("rules[1].modules \"lm_head\" matches no linear layer"));
}

TEST(PrecisionPolicy, OfTheBf16RecipeHasNoFp8AndTakesNoPattern) {
  const absl::StatusOr<PrecisionPolicy> policy = PrecisionPolicy::Create(
      {.precision = RecipeSpec::Precision::kBf16, .keep_bf16 = {}}, TwelveLayers());
  EXPECT_FALSE(policy->any_fp8());
  EXPECT_FALSE(
      PrecisionPolicy::Create(
          {.precision = RecipeSpec::Precision::kBf16, .keep_bf16 = {"*.up_proj"}}, TwelveLayers())
          .ok());
}

}  // namespace
}  // namespace octavo::engine
