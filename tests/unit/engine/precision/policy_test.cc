#include "worker/engine/precision/policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

using ::testing::HasSubstr;

ParameterLayout TwelveLayers() {
  return PlanParameters({.vocabulary = 16,
                         .hidden = 8,
                         .intermediate = 16,
                         .layers = 12,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 4});
}

PrecisionPolicy Fp8Except(const std::vector<std::string>& patterns) {
  absl::StatusOr<PrecisionPolicy> policy = PrecisionPolicy::Create(
      {.precision = RecipePlan::Precision::kFp8, .keep_bf16 = patterns}, TwelveLayers());
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

TEST(PrecisionPolicy, MakesEveryLinearFp8AndNothingElse) {
  const PrecisionPolicy policy = Fp8Except({});
  for (const ParameterSpec& parameter : TwelveLayers().parameters) {
    EXPECT_EQ(policy.IsFp8(parameter.module), parameter.kind == ParameterKind::kLinear)
        << parameter.name;
  }
  EXPECT_EQ(policy.kept_parameters(), 0);
}

TEST(PrecisionPolicy, KeepsOneLayerWithoutItsNamesakes) {
  const PrecisionPolicy policy = Fp8Except({"model.layers.1.*"});
  EXPECT_FALSE(policy.IsFp8("model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(policy.IsFp8("model.layers.1.mlp.down_proj"));
  EXPECT_TRUE(policy.IsFp8("model.layers.11.mlp.down_proj"));
  EXPECT_EQ(policy.kept_parameters(), 2 * 8 * (8 + 4) + 3 * 8 * 16);
}

TEST(PrecisionPolicy, KeepsOneKindOfLinearInEveryLayerAndCountsItOnce) {
  const PrecisionPolicy policy = Fp8Except({"*.down_proj", "model.layers.3.mlp.down_proj"});
  EXPECT_FALSE(policy.IsFp8("model.layers.7.mlp.down_proj"));
  EXPECT_TRUE(policy.IsFp8("model.layers.7.mlp.up_proj"));
  EXPECT_EQ(policy.kept_parameters(), 12 * 8 * 16);
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

TEST(PrecisionPolicy, OfTheBf16RecipeHasNoFp8AndTakesNoPattern) {
  const absl::StatusOr<PrecisionPolicy> policy = PrecisionPolicy::Create(
      {.precision = RecipePlan::Precision::kBf16, .keep_bf16 = {}}, TwelveLayers());
  EXPECT_FALSE(policy->any_fp8());
  EXPECT_FALSE(
      PrecisionPolicy::Create(
          {.precision = RecipePlan::Precision::kBf16, .keep_bf16 = {"*.up_proj"}}, TwelveLayers())
          .ok());
}

}  // namespace
}  // namespace octavo::engine
