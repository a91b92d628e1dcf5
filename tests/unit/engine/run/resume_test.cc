// A run that was interrupted, saved and resumed is the run that was not, bit for bit.
#include <fstream>

#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/tiny_run.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::RunSteps;
using ::octavo::testing_support::TinyRun;
using ::testing::HasSubstr;

class Resume : public ::testing::TestWithParam<int64_t> {};  // gradient accumulation

void ExpectSameStep(const StepReport& a, const StepReport& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradient_norm, b.gradient_norm);
  EXPECT_EQ(a.learning_rate, b.learning_rate);
  EXPECT_EQ(a.step_tokens, b.step_tokens);
  EXPECT_EQ(a.total_tokens, b.total_tokens);
  ASSERT_EQ(a.probe.has_value(), b.probe.has_value());
  if (!a.probe.has_value()) return;
  EXPECT_EQ(a.probe->loss_fp8, b.probe->loss_fp8);
  EXPECT_EQ(a.probe->loss_bf16, b.probe->loss_bf16);
}

TEST_P(Resume, EqualsTheUninterruptedRun) {
  TinyRun run;
  run.plan.gradient_accumulation = GetParam();
  auto straight = run.Prepare();
  ASSERT_TRUE(straight.ok()) << straight.status();
  const std::vector<StepReport> expected = RunSteps(straight->get(), run.plan.steps);
  ASSERT_EQ(expected.size(), 8u);
  const auto expected_end = (*straight)->Finish();
  ASSERT_TRUE(expected_end.ok());

  {
    auto first = run.Prepare();
    ASSERT_TRUE(first.ok());
    RunSteps(first->get(), 3);
    ASSERT_TRUE((*first)->SaveCheckpoint(run.folder.At("checkpoint")).ok());
  }
  auto second = run.Prepare(run.folder.At("checkpoint"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->completed_steps(), 3);
  const std::vector<StepReport> resumed = RunSteps(second->get(), run.plan.steps);
  ASSERT_EQ(resumed.size(), 5u);
  for (size_t i = 0; i < resumed.size(); ++i) ExpectSameStep(resumed[i], expected[i + 3]);
  const auto end = (*second)->Finish();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->weights_sha256, expected_end->weights_sha256);
  ASSERT_TRUE(end->initial_holdout.has_value() && end->holdout.has_value());
  EXPECT_EQ(end->initial_holdout->loss_bf16, expected_end->initial_holdout->loss_bf16);
  EXPECT_EQ(end->holdout->loss_fp8, expected_end->holdout->loss_fp8);
}

INSTANTIATE_TEST_SUITE_P(Accumulations, Resume, ::testing::Values(1, 3));

// A trainer may be lost between the last checkpoint and its report.
TEST(ResumeAfterTheLastStep, OnlyFinishes) {
  TinyRun run;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  RunSteps(engine->get(), run.plan.steps);
  ASSERT_TRUE((*engine)->SaveCheckpoint(run.folder.At("checkpoint")).ok());
  auto again = run.Prepare(run.folder.At("checkpoint"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE((*again)->done());
  const auto expected = (*engine)->Finish();
  const auto report = (*again)->Finish();
  ASSERT_TRUE(expected.ok() && report.ok());
  EXPECT_EQ(report->weights_sha256, expected->weights_sha256);
  EXPECT_EQ(report->holdout->loss_bf16, expected->holdout->loss_bf16);
  EXPECT_EQ(report->training_gemms.fp8, 0);
}

TEST(SavedTwice, GivesEqualFiles) {
  TinyRun run;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok());
  RunSteps(engine->get(), 2);
  const auto first = (*engine)->SaveCheckpoint(run.folder.At("a"));
  auto again = run.Prepare(run.folder.At("a"));
  ASSERT_TRUE(again.ok()) << again.status();
  const auto second = (*again)->SaveCheckpoint(run.folder.At("b"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(*first, Sha256Of(*ReadFile(run.folder.At("a/manifest.json"), 1 << 20)));
}

// What is wrong is said by name.
class ChangedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = run_.Prepare();
    ASSERT_TRUE(engine.ok()) << engine.status();
    RunSteps(engine->get(), 1);
    ASSERT_TRUE((*engine)->SaveCheckpoint(run_.folder.At("checkpoint")).ok());
  }
  std::string ResumeMessage(absl::StatusCode code) {
    const auto resumed = run_.Prepare(run_.folder.At("checkpoint"));
    EXPECT_EQ(resumed.status().code(), code) << resumed.status();
    return std::string(resumed.status().message());
  }
  TinyRun run_;
};

TEST_F(ChangedRun, ASeedIsNamed) {
  run_.plan.seed = 18;
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kFailedPrecondition),
              HasSubstr("seed was 17 and is 18"));
}

TEST_F(ChangedRun, AScheduleIsNamed) {
  run_.plan.schedule.warmup_steps = 3;
  run_.plan.steps = 9;
  const std::string message = ResumeMessage(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message, HasSubstr("schedule.warmup_steps was 2 and is 3"));
  EXPECT_THAT(message, HasSubstr("steps was 8 and is 9"));
}

TEST_F(ChangedRun, ABatchIsNamed) {
  run_.plan.micro_batch = 4;
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kFailedPrecondition),
              HasSubstr("batch.micro_batch was 2 and is 4"));
}

TEST_F(ChangedRun, OneByteOfTheDataIsNoticed) {
  std::string text = octavo::testing_support::TinyText(200);
  text[100] ^= 1;
  run_.folder.Write("train.txt", text);
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kFailedPrecondition), HasSubstr("data"));
}

TEST_F(ChangedRun, AModelConfigIsNamed) {
  std::string config = octavo::testing_support::kTinyConfig;
  config.replace(config.find("10000.0"), 7, "20000.0");
  run_.folder.Write("model/config.json", config);
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kFailedPrecondition),
              HasSubstr("model.config.rope_theta was 10000 and is 20000"));
}

TEST_F(ChangedRun, DataElsewhereIsTheSameRun) {
  run_.plan.data.files = {run_.folder.Write("moved.txt", octavo::testing_support::TinyText(200))};
  const auto resumed = run_.Prepare(run_.folder.At("checkpoint"));
  EXPECT_TRUE(resumed.ok()) << resumed.status();
}

TEST_F(ChangedRun, ATruncatedFileIsDataLoss) {
  const std::string file = run_.folder.At("checkpoint/exp_avg.safetensors");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kDataLoss), HasSubstr("exp_avg.safetensors"));
}

TEST_F(ChangedRun, AFlippedBitIsDataLoss) {
  const std::string file = run_.folder.At("checkpoint/master.safetensors");
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-5, std::ios::end);
  const auto byte = static_cast<char>(stream.peek() ^ 0x10);
  stream.seekp(-5, std::ios::end);
  stream.put(byte);
  stream.close();
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kDataLoss),
              AllOf(HasSubstr("master.safetensors"), HasSubstr("SHA-256")));
}

TEST_F(ChangedRun, AMissingFileIsDataLoss) {
  std::filesystem::remove(run_.folder.At("checkpoint/state.json"));
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kDataLoss), HasSubstr("state.json"));
  std::filesystem::remove(run_.folder.At("checkpoint/manifest.json"));
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kDataLoss), HasSubstr("manifest.json"));
}

TEST_F(ChangedRun, AMissingFolderIsNotFound) {
  std::filesystem::remove_all(run_.folder.At("checkpoint"));
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kNotFound), HasSubstr("checkpoint"));
}

}  // namespace
}  // namespace octavo::engine
