// Steps that meet a value that is not finite are counted by kind and module, leave no trace in the
// weights, and end the run when they do not stop. Under both recipes: a quantised Inf is a number,
// so that loss and gradient alone would not tell.
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/run/run_fixture.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::RandomDocument;
using ::octavo::testing_support::TemporaryFolder;
using ::testing::HasSubstr;
using Precision = RecipeSpec::Precision;

constexpr int64_t kSequence = 16;

TestRun RunWith(Precision precision, const ChangeWeights& weights, double learning_rate = 1e-2) {
  RunSpec spec = TinyPlan(kSequence);
  spec.recipe.precision = precision;
  spec.optimizer.learning_rate = learning_rate;
  return MakeRun(spec, {{RandomDocument(16, 48, 1)}, {RandomDocument(16, 48, 2)}},
                 {.holdout = {}, .taken = nullptr, .weights = weights, .wrap = {}});
}

// Multiplies the parameters whose name ends so.
ChangeWeights Scale(std::vector<std::string> suffixes, float factor) {
  return [suffixes = std::move(suffixes), factor](const std::string& name,
                                                  std::vector<float>* values) {
    for (const std::string& suffix : suffixes) {
      if (!absl::EndsWith(name, suffix)) continue;
      for (float& value : *values) value *= factor;
    }
  };
}

ChangeWeights SetFirst(const std::string& parameter, float value) {
  return [parameter, value](const std::string& name, std::vector<float>* values) {
    if (name == parameter) values->front() = value;
  };
}

// silu(gate) * up of layer 1 leaves BF16; gate and up themselves do not.
ChangeWeights OverflowingSwiglu() {
  return Scale({"layers.1.mlp.gate_proj.weight", "layers.1.mlp.up_proj.weight"}, 1e21f);
}

// Master weights, both moments and the count of applied updates, as a checkpoint holds them.
std::vector<std::string> StateOf(const TestRun& run, const std::string& folder) {
  const absl::StatusOr<std::string> saved = run.run->SaveCheckpoint(folder);
  EXPECT_TRUE(saved.ok()) << saved.status();
  std::vector<std::string> state;
  for (const char* file : {"master", "exp_avg", "exp_avg_sq"}) {
    state.push_back(*ReadFile(absl::StrCat(folder, "/", file, ".safetensors"), 1 << 24));
  }
  const std::string json = *ReadFile(folder + "/state.json", 1 << 16);
  state.push_back(json.substr(json.find("applied_updates"), 24));
  return state;
}

class Nonfinite : public ::testing::TestWithParam<Precision> {};

INSTANTIATE_TEST_SUITE_P(Recipes, Nonfinite, ::testing::Values(Precision::kBf16, Precision::kFp8),
                         [](const auto& tested) {
                           return tested.param == Precision::kFp8 ? "Fp8" : "Bf16";
                         });

// A step that was skipped, with what it met first.
void ExpectSkipped(TestRun* run, NonfiniteKind kind, const std::string& module) {
  const StepReport report = run->Step();
  EXPECT_FALSE(report.applied);
  EXPECT_GT(report.nonfinite.of(kind), 0);
  EXPECT_STREQ(NameOf(report.nonfinite.first_kind), NameOf(kind));
  EXPECT_EQ(report.nonfinite.first_module, module);
}

TEST_P(Nonfinite, AnOverflowInSwigluSkipsEveryStepAndChangesNothing) {
  TemporaryFolder root;
  TestRun run = RunWith(GetParam(), OverflowingSwiglu());
  const std::vector<std::string> before = StateOf(run, root.At("before"));
  for (int step = 1; step <= 4; ++step) {
    const StepReport report = run.Step();
    EXPECT_FALSE(report.applied);
    EXPECT_EQ(report.nonfinite_steps, step);
    const bool fp8 = GetParam() == Precision::kFp8;
    EXPECT_STREQ(NameOf(report.nonfinite.first_kind), fp8 ? "activations" : "norm rows");
    EXPECT_EQ(report.nonfinite.first_module, fp8 ? "model.layers.1.mlp.down_proj" : "model.norm");
  }
  EXPECT_EQ(StateOf(run, root.At("after")), before);
}

TEST_P(Nonfinite, ANormWhoseSumOfSquaresOverflowsIsSeen) {
  TestRun run = RunWith(GetParam(), Scale({"embed_tokens.weight"}, 1e21f));
  for (int step = 0; step < 2; ++step)
    ExpectSkipped(&run, NonfiniteKind::kNormRow, "model.layers.0.input_layernorm");
}

// Nothing but new weights can mend a weight: the counter stays until they are quantised again.
TEST_P(Nonfinite, AWeightThatIsNotFiniteSkipsEveryStep) {
  for (const float value : {3.4e38f, std::numeric_limits<float>::infinity(), NAN}) {
    TestRun run = RunWith(GetParam(), SetFirst("model.layers.0.self_attn.k_proj.weight", value));
    for (int step = 0; step < 3; ++step) {
      const StepReport report = run.Step();
      EXPECT_FALSE(report.applied);
      EXPECT_EQ(report.nonfinite.of(NonfiniteKind::kWeight), 1) << value;
      EXPECT_EQ(report.nonfinite.first_module, "model.layers.0.self_attn.k_proj");
    }
  }
}

TEST_P(Nonfinite, ANormsWeightCountsToo) {
  TestRun run = RunWith(GetParam(), SetFirst("model.norm.weight", NAN));
  ExpectSkipped(&run, NonfiniteKind::kWeight, "model.norm");
}

TEST_P(Nonfinite, AreReportedAndChangeNoWeight) {
  // The first update throws the weights far beyond what BF16 activations can hold.
  TestRun run = RunWith(GetParam(), {}, 1e30);
  EXPECT_TRUE(run.Step().applied);
  const std::string weights = run.WeightsSha256();
  const StepReport second = run.Step();
  EXPECT_FALSE(second.applied);
  EXPECT_EQ(second.nonfinite_steps, 1);
  EXPECT_EQ(second.step, 2);
  const StepReport third = run.Step();
  EXPECT_EQ(third.nonfinite_steps, 2);
  EXPECT_EQ(third.total_tokens, 3 * 15);
  EXPECT_EQ(run.run->completed_steps(), 3);
  EXPECT_EQ(run.WeightsSha256(), weights);
}

TEST_P(Nonfinite, TenInARowEndTheRunAndNameTheModule) {
  TestRun run = RunWith(GetParam(), OverflowingSwiglu());
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(run.Step().applied);
  const absl::StatusOr<StepReport> tenth = run.run->Step();
  EXPECT_TRUE(absl::IsOutOfRange(tenth.status()));
  const char* const where = GetParam() == Precision::kFp8
                                ? "first in activations of model.layers.1.mlp.down_proj"
                                : "first in norm rows of model.norm";
  EXPECT_THAT(std::string(tenth.status().message()),
              AllOf(HasSubstr("10 steps in a row"), HasSubstr("step 10"), HasSubstr(where),
                    HasSubstr("learning_rate")));
}

TEST_P(Nonfinite, TheFinalReportAddsUpAndAnEvaluationIsNotANumber) {
  RunSpec spec = TinyPlan(kSequence);
  spec.recipe.precision = GetParam();
  TestRun run = MakeRun(spec, {{RandomDocument(16, 48, 1)}},
                        {.holdout = {{RandomDocument(16, 48, 3)}},
                         .taken = nullptr,
                         .weights = OverflowingSwiglu(),
                         .wrap = {}});
  const StepReport step = run.Step();
  run.Step();
  const absl::StatusOr<FinalReport> report = run.run->Finish();
  ASSERT_TRUE(report.ok()) << report.status();
  for (int kind = 0; kind < kNonfiniteKinds; ++kind) {
    const auto at = static_cast<size_t>(kind);
    EXPECT_EQ(report->nonfinite.of_kind[at], 2 * step.nonfinite.of_kind[at]);
  }
  EXPECT_EQ(report->nonfinite.first_module, step.nonfinite.first_module);
  EXPECT_TRUE(std::isnan(report->holdout->loss_bf16));
  if (GetParam() == Precision::kFp8) {
    EXPECT_TRUE(std::isnan(*report->holdout->loss_fp8));
  }
}

TEST(NonfiniteWeights, AreNeverPublished) {
  TemporaryFolder root;
  TestRun run = RunWith(Precision::kFp8, {}, 1e39);
  run.Step();
  const absl::StatusOr<std::string> saved = run.run->SaveCheckpoint(root.At("checkpoint"));
  EXPECT_TRUE(absl::IsOutOfRange(saved.status())) << saved.status();
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr("model."));
  EXPECT_TRUE(std::filesystem::is_empty(root.path()));
}

}  // namespace
}  // namespace octavo::engine
