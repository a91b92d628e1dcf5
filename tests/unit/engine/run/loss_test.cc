// The loss of a step is the mean over its target tokens, however the step is cut into
// micro-batches.
#include "gtest/gtest.h"
#include "tests/support/counting_backend.h"
#include "tests/unit/engine/run/run_fixture.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::Document;
using ::octavo::testing_support::RandomDocument;

constexpr int64_t kSequence = 24;

// One row of one document, or of documents of a length each: a document of n tokens has n - 1
// targets.
std::vector<Document> Row(uint32_t seed, int64_t document_tokens) {
  std::vector<Document> row;
  for (int64_t start = 0; start < kSequence; start += document_tokens) {
    const int64_t tokens = std::min(document_tokens, kSequence - start);
    row.push_back(RandomDocument(tokens, 48, seed * 100 + static_cast<uint32_t>(start)));
  }
  return row;
}

// 23, 1, 12, 23, 0, 12, 16, 23 targets.
FixedCorpus::Rows UnevenRows() {
  FixedCorpus::Rows rows = {Row(1, 24), Row(2, 1), Row(3, 2), Row(4, 24),
                            Row(5, 1),  Row(6, 2), Row(7, 3), Row(8, 24)};
  rows[1] = {RandomDocument(2, 48, 9)};
  while (rows[1].size() < kSequence - 1) rows[1].push_back({7});
  return rows;
}

RunSpec Plan(int64_t micro_batch, int64_t accumulation) {
  RunSpec spec = TinyPlan(kSequence);
  spec.recipe.precision = RecipeSpec::Precision::kBf16;
  spec.micro_batch = micro_batch;
  spec.gradient_accumulation = accumulation;
  return spec;
}

// BF16 rounds activation gradients, which are scaled alike in every split; only the order of
// float32 sums over tokens differs, and the rounding of a norm's or embedding's partial sums.
TEST(StepLoss, DoesNotDependOnHowTheStepIsCut) {
  TestRun whole = MakeRun(Plan(8, 1), UnevenRows());
  const StepReport expected = whole.Step();
  EXPECT_EQ(expected.step_tokens, 23 + 1 + 12 + 23 + 0 + 12 + 16 + 23);
  const double next_loss = whole.Step().loss;
  for (const auto& [micro_batch, accumulation] : {std::pair(4, 2), {2, 4}, {1, 8}}) {
    SCOPED_TRACE(micro_batch);
    TestRun cut = MakeRun(Plan(micro_batch, accumulation), UnevenRows());
    const StepReport report = cut.Step();
    EXPECT_EQ(report.step_tokens, expected.step_tokens);
    EXPECT_NEAR(report.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_NEAR(report.gradient_norm, expected.gradient_norm, 2e-3 * expected.gradient_norm);
    EXPECT_EQ(report.learning_rate, expected.learning_rate);
    EXPECT_NEAR(cut.Step().loss, next_loss, 1e-3 * next_loss);
  }
}

// The mean of means would give each micro-batch half of the weight.
TEST(StepLoss, WeighsMicroBatchesByTheirTokens) {
  TestRun both = MakeRun(Plan(1, 2), {UnevenRows()[0], UnevenRows()[1]});
  TestRun first = MakeRun(Plan(1, 1), {UnevenRows()[0]});
  TestRun second = MakeRun(Plan(1, 1), {UnevenRows()[1]});
  const double loss_of_23 = first.Step().loss;
  const double loss_of_1 = second.Step().loss;
  ASSERT_GT(std::fabs(loss_of_1 - loss_of_23), 1e-2);
  EXPECT_NEAR(both.Step().loss, (23 * loss_of_23 + 1 * loss_of_1) / 24, 1e-6);
}

TEST(StepLoss, IgnoresMicroBatchesWithoutTargets) {
  TestRun with = MakeRun(Plan(1, 2), {UnevenRows()[0], UnevenRows()[4]});
  TestRun without = MakeRun(Plan(1, 1), {UnevenRows()[0]});
  const StepReport report = with.Step();
  EXPECT_TRUE(report.applied);
  const StepReport expected = without.Step();
  EXPECT_EQ(report.loss, expected.loss);
  EXPECT_EQ(report.gradient_norm, expected.gradient_norm);
  EXPECT_EQ(with.WeightsSha256(), without.WeightsSha256());
}

TEST(StepLoss, StepsWithoutTargetsChangeNothingAndAreCounted) {
  TestRun run = MakeRun(Plan(1, 1), {UnevenRows()[4], UnevenRows()[0]});
  const std::string before = run.WeightsSha256();
  const StepReport report = run.Step();
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.step_tokens, 0);
  EXPECT_EQ(report.loss, 0);
  EXPECT_EQ(report.nonfinite_steps, 0);
  EXPECT_EQ(run.WeightsSha256(), before);
  EXPECT_EQ(run.Step().step_tokens, 23);  // the data went on
  const auto final_report = run.run->Finish();
  ASSERT_TRUE(final_report.ok());
  ASSERT_EQ(final_report->warnings.size(), 1u);
  EXPECT_EQ(final_report->warnings[0], "1 steps had no target token and changed nothing");
}

TEST(StepLoss, GradientsDoNotLeakIntoTheNextStep) {
  TestRun twice = MakeRun(Plan(1, 1), {UnevenRows()[0]});
  RunSpec still = Plan(1, 1);
  still.optimizer.learning_rate = 0;
  TestRun run = MakeRun(still, {UnevenRows()[0]});
  const double norm = run.Step().gradient_norm;
  EXPECT_EQ(run.Step().gradient_norm, norm);
  EXPECT_EQ(twice.Step().gradient_norm, norm);
}

// The position counts rows: neither steps nor micro-batches.
TEST(StepData, TakesEveryRowOnceAndInOrder) {
  FixedCorpus::Taken taken;
  TestRun run = MakeRun(Plan(2, 3), UnevenRows(),
                        {.holdout = {}, .taken = &taken, .weights = {}, .wrap = {}});
  run.Step();
  run.Step();
  EXPECT_EQ(taken, (FixedCorpus::Taken{{0, 2}, {2, 2}, {4, 2}, {6, 2}, {8, 2}, {10, 2}}));
}

class Overfit : public ::testing::TestWithParam<RecipeSpec::Precision> {};

// FP8 must learn a batch by heart as BF16 does.
TEST_P(Overfit, ABatchIsLearntByHeart) {
  RunSpec spec = Plan(2, 1);
  spec.recipe.precision = GetParam();
  TestRun run = MakeRun(spec, {Row(1, 24), Row(4, 24)});
  double loss = run.Step().loss;
  EXPECT_GT(loss, 3);
  for (int step = 0; step < 250 && loss >= 0.05; ++step) loss = run.Step().loss;
  EXPECT_LT(loss, 0.05);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Overfit, ::testing::Values(RecipeSpec::Precision::kFp8, RecipeSpec::Precision::kBf16),
    [](const auto& test) { return test.param == RecipeSpec::Precision::kFp8 ? "Fp8" : "Bf16"; });

// Nothing in a step waits for the host to decide; a probe reads its own loss.
TEST(Step, ReadsFromTheBackendOnce) {
  for (const auto precision : {RecipeSpec::Precision::kFp8, RecipeSpec::Precision::kBf16}) {
    testing_support::CountingBackend* counting = nullptr;
    RunSpec spec = Plan(2, 3);
    spec.recipe.precision = precision;
    TestRun run = MakeRun(
        spec, UnevenRows(),
        {.holdout = {},
         .taken = nullptr,
         .weights = {},
         .wrap = [&](std::unique_ptr<kernels::Backend> inner) {
           auto outer = std::make_unique<testing_support::CountingBackend>(std::move(inner));
           counting = outer.get();
           return outer;
         }});
    for (int step = 0; step < 3; ++step) {
      const int64_t before = counting->reads();
      EXPECT_TRUE(run.Step().applied);
      EXPECT_EQ(counting->reads() - before, 1);
    }
  }
}

}  // namespace
}  // namespace octavo::engine
