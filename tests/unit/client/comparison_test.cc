#include "client/render/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace octavo::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ComparedJob Finished(const std::string& recipe, const std::string& id) {
  ComparedJob compared;
  v1::Job& job = compared.job;
  job.set_id(id);
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  v1::Stage& stage = *job.mutable_spec()->add_stages();
  stage.mutable_recipe()->set_name(recipe);
  stage.set_steps(3);
  job.mutable_report()->set_final_loss(recipe == "bf16" ? 2.0 : 2.1);
  job.mutable_report()->set_tokens_per_second(1000);
  v1::Holdout& holdout = *job.mutable_report()->mutable_holdout();
  holdout.set_tokens(512);
  holdout.set_tokens_sha256("same");
  holdout.set_loss_bf16(recipe == "bf16" ? 2.5 : 2.6);
  if (recipe == "fp8") holdout.set_loss_fp8(2.73);
  return compared;
}

void AddLoss(ComparedJob* job, int64_t step, double value) {
  v1::MetricPoint& point = *job->losses.add_points();
  point.set_name("train/loss");
  point.set_step(step);
  point.set_value(value);
}

TEST(Comparison, TheBf16JobIsTheReferenceInEitherOrder) {
  const ComparedJob bf16 = Finished("bf16", "job-b");
  const ComparedJob fp8 = Finished("fp8", "job-f");
  EXPECT_EQ(CompareJobs(bf16, fp8).reference.id(), "job-b");
  EXPECT_EQ(CompareJobs(fp8, bf16).reference.id(), "job-b");
  EXPECT_EQ(CompareJobs(fp8, Finished("fp8", "job-g")).reference.id(), "job-f");
}

TEST(Comparison, AnswersTheTwoQuestionsApart) {
  const Comparison comparison = CompareJobs(Finished("bf16", "b"), Finished("fp8", "f"));
  EXPECT_NEAR(comparison.final_loss.value.value(), 0.05, 1e-12);
  EXPECT_NEAR(comparison.arithmetic.value.value(), 0.05, 1e-12);  // (2.73 - 2.6) / 2.6
  EXPECT_NEAR(comparison.training.value.value(), 0.04, 1e-12);    // (2.6 - 2.5) / 2.5
  const std::string text = RenderComparison(Terminal(), comparison);
  EXPECT_THAT(text, HasSubstr("FP8 arithmetic now (same weights)              +5.000 %"));
  EXPECT_THAT(text, HasSubstr("FP8 training (exported weights, both in BF16)  +4.000 %"));
}

TEST(Comparison, OtherHeldOutTokensAreNotComparable) {
  ComparedJob fp8 = Finished("fp8", "f");
  fp8.job.mutable_report()->mutable_holdout()->set_tokens_sha256("other");
  const Comparison comparison = CompareJobs(Finished("bf16", "b"), fp8);
  EXPECT_FALSE(comparison.training.value.has_value());
  EXPECT_THAT(comparison.training.reason, HasSubstr("not comparable"));
  EXPECT_TRUE(comparison.arithmetic.value.has_value());  // needs the one job only
}

TEST(Comparison, AbsentHashesAreNotEqual) {
  ComparedJob bf16 = Finished("bf16", "b");
  ComparedJob fp8 = Finished("fp8", "f");
  bf16.job.mutable_report()->mutable_holdout()->clear_tokens_sha256();
  fp8.job.mutable_report()->mutable_holdout()->clear_tokens_sha256();
  EXPECT_FALSE(CompareJobs(bf16, fp8).training.value.has_value());
}

TEST(Comparison, SaysWhatIsMissing) {
  ComparedJob fp8 = Finished("fp8", "f");
  fp8.job.mutable_report()->mutable_holdout()->clear_loss_fp8();
  EXPECT_THAT(CompareJobs(Finished("bf16", "b"), fp8).arithmetic.reason,
              HasSubstr("f scored no held-out tokens"));
  fp8.job.clear_report();
  const Comparison running = CompareJobs(Finished("bf16", "b"), fp8);
  EXPECT_THAT(running.final_loss.reason, HasSubstr("f has no report yet"));
  EXPECT_THAT(running.training.reason, HasSubstr("f has no report yet"));
  const Comparison both = CompareJobs(Finished("bf16", "b"), Finished("bf16", "c"));
  EXPECT_THAT(both.arithmetic.reason, HasSubstr("c is not an FP8 job"));
}

TEST(Comparison, LossesWithoutRatioSaySo) {
  ComparedJob bf16 = Finished("bf16", "b");
  bf16.job.mutable_report()->set_final_loss(0);
  EXPECT_THAT(CompareJobs(bf16, Finished("fp8", "f")).final_loss.reason, HasSubstr("no ratio"));
  bf16.job.mutable_report()->set_final_loss(NAN);
  EXPECT_THAT(CompareJobs(bf16, Finished("fp8", "f")).final_loss.reason, HasSubstr("no ratio"));
}

TEST(Comparison, GapsStandAtCommonStepsAndTheNewestValueCounts) {
  ComparedJob bf16 = Finished("bf16", "b");
  ComparedJob fp8 = Finished("fp8", "f");
  AddLoss(&bf16, 1, 4);
  AddLoss(&bf16, 2, 9);
  AddLoss(&bf16, 2, 2);  // a later attempt repeated the step
  AddLoss(&bf16, 3, 0);  // no ratio to nothing
  AddLoss(&fp8, 2, 2.5);
  AddLoss(&fp8, 3, 1);
  AddLoss(&fp8, 4, 1);
  const Comparison comparison = CompareJobs(bf16, fp8);
  ASSERT_EQ(comparison.gaps.size(), 1u);
  EXPECT_EQ(comparison.gaps[0].x, 2);
  EXPECT_NEAR(comparison.gaps[0].y, 25, 1e-9);
}

TEST(Comparison, NamesWhatElseDiffers) {
  ComparedJob bf16 = Finished("bf16", "b");
  ComparedJob fp8 = Finished("fp8", "f");
  bf16.job.mutable_spec()->set_name("one");
  fp8.job.mutable_spec()->set_name("two");
  EXPECT_THAT(CompareJobs(bf16, fp8).differences, IsEmpty());
  fp8.job.mutable_spec()->mutable_stages(0)->set_seed(7);
  fp8.job.mutable_spec()->mutable_stages(0)->set_steps(4);
  EXPECT_THAT(CompareJobs(bf16, fp8).differences,
              ElementsAre(HasSubstr("steps: 3 -> 4"), HasSubstr("seed")));
  EXPECT_THAT(RenderComparison(Terminal(), CompareJobs(bf16, fp8)),
              HasSubstr("differ in more than the recipe"));
}

TEST(Comparison, TableShowsBothJobsAndTheDifference) {
  ComparedJob fp8 = Finished("fp8", "job-f");
  fp8.job.mutable_report()->mutable_exact_match()->set_total(100);
  fp8.job.mutable_report()->mutable_exact_match()->set_correct(90);
  fp8.job.mutable_report()->set_fp8_gemms(1234);
  ComparedJob bf16 = Finished("bf16", "job-b");
  bf16.job.mutable_report()->mutable_exact_match()->set_total(100);
  bf16.job.mutable_report()->mutable_exact_match()->set_correct(92);
  const std::string text = RenderComparison(Terminal(), CompareJobs(bf16, fp8));
  EXPECT_THAT(text, HasSubstr("bf16 job-b"));
  EXPECT_THAT(text, HasSubstr("92 of 100"));
  EXPECT_THAT(text, HasSubstr("-2.000 % points"));
  EXPECT_THAT(text, HasSubstr("1,234"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Comparison, JsonGivesReasonsForWhatIsMissing) {
  ComparedJob fp8 = Finished("fp8", "f");
  fp8.job.mutable_report()->mutable_holdout()->set_tokens_sha256("other");
  const auto json = nlohmann::json::parse(ComparisonJson(CompareJobs(Finished("bf16", "b"), fp8)));
  EXPECT_EQ(json["reference"], "b");
  EXPECT_NEAR(json["final_loss_ratio"]["value"].get<double>(), 0.05, 1e-12);
  EXPECT_TRUE(json["fp8_training_ratio"]["value"].is_null());
  EXPECT_THAT(json["fp8_training_ratio"]["reason"].get<std::string>(), HasSubstr("not comparable"));
}

// A loss of 2.0 that falls to 1.0 within 20 steps around `fall`, with some scatter.
double LossOfFall(int64_t step, int64_t fall) {
  const double scatter = 0.02 * static_cast<double>(step * 7919 % 11 - 5);
  return 1 + scatter + 1 / (1 + std::exp(static_cast<double>(step - fall) / 5));
}

void AddFall(ComparedJob* job, int64_t fall) {
  for (int64_t step = 1; step <= 1000; ++step) AddLoss(job, step, LossOfFall(step, fall));
}

TEST(Comparison, TellsAFallThatOneJobHasYetToMakeFromTheCostOfFp8) {
  ComparedJob bf16 = Finished("bf16", "job-b");
  ComparedJob fp8 = Finished("fp8", "job-f");
  AddFall(&bf16, 400);
  AddFall(&fp8, 5000);
  const Comparison comparison = CompareJobs(bf16, fp8);
  ASSERT_TRUE(comparison.lag.has_value());
  EXPECT_NEAR(comparison.lag->level, 1.5, 0.05);
  EXPECT_NEAR(comparison.lag->reference_step.value(), 400, 20);
  EXPECT_FALSE(comparison.lag->candidate_step.has_value());
  EXPECT_FALSE(comparison.training.value.has_value());
  EXPECT_THAT(comparison.training.reason, HasSubstr("job-f has not learnt yet"));
  EXPECT_FALSE(comparison.final_loss.value.has_value());
  EXPECT_TRUE(comparison.arithmetic.value.has_value());  // of the same weights
  EXPECT_THAT(RenderComparison(Terminal(), comparison),
              testing::ContainsRegex("at step 4.. .bf16 job-b. and not yet .fp8 job-f."));
  const auto json = nlohmann::json::parse(ComparisonJson(comparison));
  EXPECT_TRUE(json["learnt_at_different_steps"]["candidate_step"].is_null());
  EXPECT_NEAR(json["learnt_at_different_steps"]["reference_step"].get<double>(), 400, 20);
}

TEST(Comparison, KeepsTheRatiosOfJobsThatBothHaveFallen) {
  for (const auto& [bf16_fall, fp8_fall] : {std::pair(300, 700), std::pair(700, 300)}) {
    ComparedJob bf16 = Finished("bf16", "b");
    ComparedJob fp8 = Finished("fp8", "f");
    AddFall(&bf16, bf16_fall);
    AddFall(&fp8, fp8_fall);
    const Comparison comparison = CompareJobs(bf16, fp8);
    ASSERT_TRUE(comparison.lag.has_value());
    EXPECT_NEAR(comparison.lag->reference_step.value(), bf16_fall, 20);
    EXPECT_NEAR(comparison.lag->candidate_step.value(), fp8_fall, 20);
    EXPECT_TRUE(comparison.training.value.has_value());
    EXPECT_THAT(RenderComparison(Terminal(), comparison), HasSubstr("or the ends alone"));
  }
}

TEST(Comparison, FindsNoLagInCurvesThatFallTogetherOrDriftApart) {
  ComparedJob bf16 = Finished("bf16", "b");
  AddFall(&bf16, 400);
  ComparedJob together = Finished("fp8", "f");
  AddFall(&together, 430);
  EXPECT_FALSE(CompareJobs(bf16, together).lag.has_value());

  ComparedJob slow_bf16 = Finished("bf16", "b");
  ComparedJob slow_fp8 = Finished("fp8", "f");
  for (int64_t step = 1; step <= 1000; ++step) {
    const double progress = static_cast<double>(step) / 1000;
    AddLoss(&slow_bf16, step, 4 / (1 + 3 * progress));
    AddLoss(&slow_fp8, step, 4 / (1 + 2 * progress));  // ends a third above
  }
  const Comparison comparison = CompareJobs(slow_bf16, slow_fp8);
  EXPECT_FALSE(comparison.lag.has_value());
  EXPECT_TRUE(comparison.training.value.has_value());
  EXPECT_THAT(RenderComparison(Terminal(), comparison), Not(HasSubstr("learnt suddenly")));
}

TEST(Comparison, FindsNoLagWhereThereAreFewLossesOrOneIsNoNumber) {
  ComparedJob bf16 = Finished("bf16", "b");
  ComparedJob fp8 = Finished("fp8", "f");
  EXPECT_FALSE(CompareJobs(bf16, fp8).lag.has_value());
  AddFall(&bf16, 400);
  AddFall(&fp8, 5000);
  AddLoss(&fp8, 1001, NAN);
  EXPECT_FALSE(CompareJobs(bf16, fp8).lag.has_value());
}

}  // namespace
}  // namespace octavo::client
