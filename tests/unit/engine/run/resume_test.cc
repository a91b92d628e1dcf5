// A run that was interrupted, saved and resumed is the run that was not, bit for bit.
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/tiny_run.h"
#include "worker/engine/fingerprint.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::RunSteps;
using ::octavo::testing_support::TinyRun;
using ::testing::HasSubstr;

struct ResumeCase {
  const char* name;
  int64_t gradient_accumulation;
  std::vector<PrecisionRule> rules = {};
};

class Resume : public ::testing::TestWithParam<ResumeCase> {};

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
  run.spec.gradient_accumulation = GetParam().gradient_accumulation;
  run.spec.recipe.rules = GetParam().rules;
  auto straight = run.Prepare();
  ASSERT_TRUE(straight.ok()) << straight.status();
  const std::vector<StepReport> expected = RunSteps(straight->get(), run.spec.steps);
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
  const std::vector<StepReport> resumed = RunSteps(second->get(), run.spec.steps);
  ASSERT_EQ(resumed.size(), 5u);
  for (size_t i = 0; i < resumed.size(); ++i) ExpectSameStep(resumed[i], expected[i + 3]);
  const auto end = (*second)->Finish();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->weights_sha256, expected_end->weights_sha256);
  ASSERT_TRUE(end->initial_holdout.has_value() && end->holdout.has_value());
  EXPECT_EQ(end->initial_holdout->loss_bf16, expected_end->initial_holdout->loss_bf16);
  EXPECT_EQ(end->holdout->loss_fp8, expected_end->holdout->loss_fp8);
}

// The interruption comes after step 3: a policy that changes with the first step after it, one that
// changes later, and one that has changed before and changes back.
INSTANTIATE_TEST_SUITE_P(
    Runs, Resume,
    ::testing::Values(
        ResumeCase{"OneMicroBatch", 1}, ResumeCase{"ThreeMicroBatches", 3},
        ResumeCase{"ForwardInBf16FromStep4", 1, {{.fprop = GemmPrecision::kBf16, .from_step = 4}}},
        ResumeCase{
            "BackwardChangesAtStep6",
            1,
            {{.dgrad = GemmPrecision::kBf16, .gradient = kernels::Element::kE5M2, .from_step = 6}}},
        ResumeCase{"AllInBf16FromStep2To4",
                   1,
                   {{.fprop = GemmPrecision::kBf16,
                     .dgrad = GemmPrecision::kBf16,
                     .wgrad = GemmPrecision::kBf16,
                     .from_step = 2,
                     .until_step = 4}}}),
    [](const auto& test) { return test.param.name; });

// A trainer may be lost between the last checkpoint and its report.
TEST(ResumeAfterTheLastStep, OnlyFinishes) {
  TinyRun run;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  RunSteps(engine->get(), run.spec.steps);
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

TEST(ResumeOnOtherThreads, GivesTheSameLossesWithinRounding) {
  TinyRun run;
  auto straight = run.Prepare();
  ASSERT_TRUE(straight.ok()) << straight.status();
  RunSteps(straight->get(), 4);
  ASSERT_TRUE((*straight)->SaveCheckpoint(run.folder.At("checkpoint")).ok());
  const std::vector<StepReport> expected = RunSteps(straight->get(), 4);
  straight->reset();
  run.backend = *kernels::OpenBackend("cpu", {.threads = 3});
  auto resumed = run.Prepare(run.folder.At("checkpoint"));
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  const std::vector<StepReport> steps = RunSteps(resumed->get(), 4);
  ASSERT_EQ(steps.size(), expected.size());
  // A product's sums may be cut otherwise on other threads, and a code near a tie may then round
  // the other way: 2^-4 of its value, averaged over a step's tokens.
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, expected[i].step);
    EXPECT_EQ(steps[i].total_tokens, expected[i].total_tokens);
    EXPECT_NEAR(steps[i].loss, expected[i].loss, 0.01 * expected[i].loss);
  }
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
  run_.spec.seed = 18;
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kFailedPrecondition),
              HasSubstr("seed was 17 and is 18"));
}

TEST_F(ChangedRun, AScheduleIsNamed) {
  run_.spec.schedule.warmup_steps = 3;
  run_.spec.steps = 9;
  const std::string message = ResumeMessage(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message, HasSubstr("schedule.warmup_steps was 2 and is 3"));
  EXPECT_THAT(message, HasSubstr("steps was 8 and is 9"));
}

TEST_F(ChangedRun, ABatchIsNamed) {
  run_.spec.micro_batch = 4;
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
  run_.spec.data.files = {run_.folder.Write("moved.txt", octavo::testing_support::TinyText(200))};
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

TEST_F(ChangedRun, AnotherEngineIsNamed) {
  nlohmann::json state =
      nlohmann::json::parse(*ReadFile(run_.folder.At("checkpoint/state.json"), 1 << 20));
  state["fingerprint"]["engine.version"] = "999";
  const std::string text = state.dump();
  nlohmann::json manifest =
      nlohmann::json::parse(*ReadFile(run_.folder.At("checkpoint/manifest.json"), 1 << 20));
  for (auto& file : manifest["files"]) {
    if (file["name"] != "state.json") continue;
    file["bytes"] = text.size();
    file["sha256"] = Sha256Of(text);
  }
  run_.folder.Write("checkpoint/state.json", text);
  run_.folder.Write("checkpoint/manifest.json", manifest.dump());
  EXPECT_THAT(ResumeMessage(absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("engine version 999"),
                    HasSubstr(absl::StrCat("has version ", kEngineVersion))));
}

// A checkpoint stands for itself: a retry on another machine needs no model folder.
TEST_F(ChangedRun, AMissingModelFolderIsNotMissed) {
  auto first = run_.Prepare();
  ASSERT_TRUE(first.ok());
  RunSteps(first->get(), 1);
  ASSERT_TRUE((*first)->Export(run_.folder.At("expected")).ok());
  std::filesystem::remove_all(run_.folder.At("model"));
  auto resumed = run_.Prepare(run_.folder.At("checkpoint"));
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  ASSERT_TRUE((*resumed)->Export(run_.folder.At("export")).ok());
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors"}) {
    EXPECT_EQ(Sha256Of(*ReadFile(run_.folder.At(absl::StrCat("export/", file)), 1 << 24)),
              Sha256Of(*ReadFile(run_.folder.At(absl::StrCat("expected/", file)), 1 << 24)))
        << file;
  }
}

// Runs that go on where ChangedRun's ends, after 8 steps instead of after 1.
class ExtendedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = run_.Prepare();
    ASSERT_TRUE(engine.ok()) << engine.status();
    first_ = RunSteps(engine->get(), run_.spec.steps);
    ASSERT_TRUE((*engine)->SaveCheckpoint(run_.folder.At("first")).ok());
    run_.spec.extend_checkpoint = run_.folder.At("first");
  }
  std::string Refusal() {
    const auto extended = run_.Prepare();
    EXPECT_TRUE(absl::IsFailedPrecondition(extended.status())) << extended.status();
    return std::string(extended.status().message());
  }
  TinyRun run_;
  std::vector<StepReport> first_;
};

TEST_F(ExtendedRun, TakesMoreStepsUnderAnotherScheduleAndSaysSo) {
  run_.spec.steps = 12;
  run_.spec.schedule = {.kind = ScheduleSpec::Kind::kConstant};
  run_.spec.optimizer.learning_rate = 1e-3;
  auto extended = run_.Prepare();
  ASSERT_TRUE(extended.ok()) << extended.status();
  EXPECT_EQ((*extended)->completed_steps(), 8);
  const std::vector<StepReport> steps = RunSteps(extended->get(), 100);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].step, 9);
  EXPECT_EQ(steps[0].learning_rate, 1e-3);
  EXPECT_EQ(steps[0].total_tokens, first_.back().total_tokens + steps[0].step_tokens);
  const auto report = (*extended)->Finish();
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->warnings, ::testing::Contains(AllOf(
                                    HasSubstr("after step 8"), HasSubstr("steps was 8 and is 12"),
                                    HasSubstr("schedule.kind was wsd and is constant"))));
  EXPECT_TRUE(report->initial_holdout.has_value()) << "that of the first run";
}

// Had it been planned so from the start, the run would have been the same.
TEST_F(ExtendedRun, EqualsTheRunThatWasPlannedLongerFromTheStart) {
  TinyRun whole;
  whole.spec.steps = 12;
  whole.spec.schedule = {.kind = ScheduleSpec::Kind::kConstant};
  auto straight = whole.Prepare();
  ASSERT_TRUE(straight.ok());
  const std::vector<StepReport> expected = RunSteps(straight->get(), 12);

  TinyRun first;
  first.spec.schedule = {.kind = ScheduleSpec::Kind::kConstant};
  auto part = first.Prepare();
  ASSERT_TRUE(part.ok());
  RunSteps(part->get(), 8);
  ASSERT_TRUE((*part)->SaveCheckpoint(first.folder.At("first")).ok());
  first.spec.steps = 12;
  first.spec.extend_checkpoint = first.folder.At("first");
  auto extended = first.Prepare();
  ASSERT_TRUE(extended.ok()) << extended.status();
  const std::vector<StepReport> steps = RunSteps(extended->get(), 12);
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < steps.size(); ++i) ExpectSameStep(steps[i], expected[i + 8]);
  EXPECT_EQ((*extended)->Finish()->weights_sha256, (*straight)->Finish()->weights_sha256);
}

TEST_F(ExtendedRun, NamesWhatMayNotChange) {
  run_.spec.steps = 12;
  run_.spec.seed = 18;
  run_.spec.micro_batch = 4;
  run_.spec.optimizer.beta2 = 0.99;
  run_.spec.recipe.precision = RecipeSpec::Precision::kBf16;
  const std::string message = Refusal();
  EXPECT_THAT(message,
              AllOf(HasSubstr("seed was 17 and is 18"),
                    HasSubstr("batch.micro_batch was 2 and is 4"), HasSubstr("optimizer.beta2"),
                    HasSubstr("recipe"), HasSubstr("may differ from the run that is extended"),
                    ::testing::Not(HasSubstr("steps was"))));
}

TEST_F(ExtendedRun, IsInspectedBeforeItIsSubmitted) {
  run_.spec.steps = 12;
  EXPECT_THAT(Inspect(run_.spec, {}).problems, ::testing::IsEmpty());
  run_.spec.seed = 18;
  run_.spec.steps = 8;
  std::vector<std::string> messages;
  for (const InspectionProblem& problem : Inspect(run_.spec, {}).problems) {
    EXPECT_EQ(problem.field, "extend_checkpoint");
    messages.push_back(problem.message);
  }
  EXPECT_THAT(messages,
              ::testing::ElementsAre(HasSubstr("steps is 8"), HasSubstr("seed was 17 and is 18")));
  run_.spec.extend_checkpoint = "/nonexistent";
  const std::vector<InspectionProblem> problems = Inspect(run_.spec, {}).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].message, HasSubstr("/nonexistent"));
}

TEST_F(ExtendedRun, NeedsAStepToTake) {
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("steps is 8"), HasSubstr("has 8 behind it")));
}

// Its own checkpoints resume as those of any run, whatever it extended.
TEST_F(ExtendedRun, ResumesFromItsOwnCheckpoints) {
  run_.spec.steps = 12;
  auto extended = run_.Prepare();
  ASSERT_TRUE(extended.ok());
  RunSteps(extended->get(), 2);
  ASSERT_TRUE((*extended)->SaveCheckpoint(run_.folder.At("second")).ok());
  std::filesystem::remove_all(run_.folder.At("first"));
  auto resumed = run_.Prepare(run_.folder.At("second"));
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ((*resumed)->completed_steps(), 10);
}

TEST(CheckContinues, ListsEveryDifference) {
  const Fingerprint then = {{"engine.version", absl::StrCat(kEngineVersion)},
                            {"a", "1"},
                            {"b", "2"},
                            {"c", "3"},
                            {"steps", "1"}};
  EXPECT_TRUE(CheckContinues(then, then, Continuation::kResume).ok());
  Fingerprint now = then;
  now.erase("c");
  now["b"] = "4";
  now["d"] = "5";
  now["steps"] = "2";
  for (const Continuation continuation : {Continuation::kResume, Continuation::kExtend}) {
    const absl::Status status = CheckContinues(then, now, continuation);
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    const std::string message(status.message());
    EXPECT_THAT(message,
                AllOf(HasSubstr("b was 2 and is 4"), HasSubstr("c was 3 and is absent"),
                      HasSubstr("d was absent and is 5"), ::testing::Not(HasSubstr("a was"))));
    EXPECT_EQ(message.find("steps was") != std::string::npos,
              continuation == Continuation::kResume);
  }
}

TEST(CheckContinues, RefusesACheckpointWithoutAnEngineVersion) {
  const Fingerprint now = {{"engine.version", absl::StrCat(kEngineVersion)}};
  EXPECT_THAT(std::string(CheckContinues({}, now, Continuation::kResume).message()),
              HasSubstr("engine version 1"));
}

}  // namespace
}  // namespace octavo::engine
