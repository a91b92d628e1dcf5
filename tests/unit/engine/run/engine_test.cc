// The engine from a folder and a text to an exported folder.
#include "worker/engine/engine.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/tiny_run.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::RunSteps;
using ::octavo::testing_support::TinyRun;
using ::testing::HasSubstr;

std::string PrepareMessage(TinyRun* run, absl::StatusCode code) {
  const auto engine = run->Prepare();
  EXPECT_EQ(engine.status().code(), code) << engine.status();
  return std::string(engine.status().message());
}

TEST(Engine, TrainsAndReportsEachStep) {
  TinyRun run;
  run.spec.steps = 12;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<StepReport> reports = RunSteps(engine->get(), 100);
  ASSERT_EQ(reports.size(), 12u);
  EXPECT_TRUE((*engine)->done());
  EXPECT_LT(reports.back().loss, reports.front().loss - 1);
  EXPECT_EQ(reports.back().learning_rate, 3e-4);
  int64_t tokens = 0;
  for (const StepReport& report : reports) {
    tokens += report.step_tokens;
    EXPECT_EQ(report.total_tokens, tokens);
    EXPECT_TRUE(report.applied);
    EXPECT_FALSE(report.nonfinite.any());
    EXPECT_GT(report.seconds, 0);
    EXPECT_GT(report.peak_memory_bytes, 1 << 20);
    EXPECT_EQ(report.probe.has_value(), report.step % 4 == 0);
    if (report.probe.has_value()) {
      EXPECT_NEAR(report.probe->loss_fp8, report.probe->loss_bf16, 0.05);
      EXPECT_NE(report.probe->loss_fp8, report.probe->loss_bf16);
    }
  }
}

// 7 linears a layer, 3 GEMMs each; the head's 3 are BF16. Probes and evaluations are not counted.
TEST(Engine, CountsTheGemmsOfTrainingAlone) {
  TinyRun run;
  run.spec.probe_every_steps = 1;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  RunSteps(engine->get(), 3);
  const auto report = (*engine)->Finish();
  ASSERT_TRUE(report.ok());
  const int64_t passes = 3 * run.spec.gradient_accumulation;
  EXPECT_EQ(report->training_gemms.fp8, passes * 2 * 7 * 3);
  EXPECT_GE(report->training_gemms.bf16, passes * 3);
  run.spec.recipe.precision = RecipeSpec::Precision::kBf16;
  auto bf16 = run.Prepare();
  ASSERT_TRUE(bf16.ok());
  RunSteps(bf16->get(), 1);
  EXPECT_EQ((*bf16)->Finish()->training_gemms.fp8, 0);
}

TEST(Engine, MeasuresTheSameHeldOutTokensBeforeAndAfter) {
  TinyRun run;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  RunSteps(engine->get(), 100);
  const auto report = (*engine)->Finish();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->initial_holdout.has_value() && report->holdout.has_value());
  EXPECT_EQ(report->initial_holdout->tokens_sha256, report->holdout->tokens_sha256);
  EXPECT_EQ(report->initial_holdout->tokens, report->holdout->tokens);
  EXPECT_LT(report->holdout->loss_bf16, report->initial_holdout->loss_bf16);
  ASSERT_TRUE(report->holdout->loss_fp8.has_value());
  EXPECT_NEAR(*report->holdout->loss_fp8, report->holdout->loss_bf16, 0.05);
  EXPECT_EQ(report->parameters,
            260 * 64 * 2 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96) + 64 * 5);

  // A BF16 run of the same job scores the same tokens, whatever its batches.
  run.spec.recipe.precision = RecipeSpec::Precision::kBf16;
  run.spec.micro_batch = 3;
  auto other = run.Prepare();
  ASSERT_TRUE(other.ok());
  const auto other_report = (*other)->Finish();
  EXPECT_EQ(other_report->holdout->tokens_sha256, report->holdout->tokens_sha256);
  EXPECT_FALSE(other_report->holdout->loss_fp8.has_value());
  EXPECT_NEAR(other_report->initial_holdout->loss_bf16, report->initial_holdout->loss_bf16, 1e-5);
}

TEST(Engine, ExportsAFolderThatLoadsToTheSameLoss) {
  TinyRun run;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  RunSteps(engine->get(), 100);
  ASSERT_TRUE((*engine)->Export(run.folder.At("export")).ok());
  const auto report = (*engine)->Finish();
  ASSERT_TRUE(report.ok());

  run.spec.model = {.folder = run.folder.At("export"),
                    .initialisation = ModelSpec::Initialisation::kWeights};
  auto loaded = run.Prepare();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto loaded_report = (*loaded)->Finish();
  ASSERT_TRUE(loaded_report.ok());
  // The forward rounds weights to BF16 anyway: the exported ones give the same bits.
  EXPECT_EQ(loaded_report->initial_holdout->loss_bf16, report->holdout->loss_bf16);
  EXPECT_EQ(loaded_report->initial_holdout->loss_fp8, report->holdout->loss_fp8);
}

// A run may take weeks: its model folder may be edited or gone when it ends.
TEST(Engine, ExportsWhatTheModelFolderHeldWhenTheRunBegan) {
  for (const bool gone : {false, true}) {
    TinyRun run;
    run.folder.Write("model/NOTICE", "as it was");
    auto engine = run.Prepare();
    ASSERT_TRUE(engine.ok()) << engine.status();
    RunSteps(engine->get(), 1);
    run.folder.Write("model/config.json", R"({"model_type": "another", "a": 1, "a": 2})");
    run.folder.Write("model/NOTICE", "changed");
    if (gone) std::filesystem::remove_all(run.folder.At("model"));
    const absl::Status exported = (*engine)->Export(run.folder.At("export"));
    ASSERT_TRUE(exported.ok()) << exported;
    EXPECT_EQ(*ReadFile(run.folder.At("export/NOTICE"), 100), "as it was");
    auto expected = nlohmann::ordered_json::parse(octavo::testing_support::kTinyConfig);
    expected["torch_dtype"] = "bfloat16";
    EXPECT_EQ(*ReadFile(run.folder.At("export/config.json"), 1 << 20), expected.dump(2) + "\n");
  }
}

TEST(Engine, RefusesADuplicateKeyBeforeTheFirstStep) {
  TinyRun run;
  std::string config = octavo::testing_support::kTinyConfig;
  config.insert(config.find("\"vocab_size\""), "\"torch_dtype\": \"float16\", ");
  run.folder.Write("model/config.json", config);
  EXPECT_THAT(PrepareMessage(&run, absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("config.json"), HasSubstr("\"torch_dtype\" occurs twice")));
}

TEST(Engine, AnswersWhatItHasLearnt) {
  TinyRun run;
  std::string text;
  for (int i = 0; i < 300; ++i) text += i % 2 == 0 ? "ab=cd\n" : "xyz=w\n";
  run.folder.Write("train.txt", text);
  run.spec.evaluation.exact_match_file = run.folder.Write("rows.jsonl",
                                                          R"({"prompt": "ab=", "answer": "cd"}
{"prompt": "xyz=", "answer": "w"}
{"prompt": "xyz=", "answer": "cd"}
)");
  run.spec.evaluation.exact_match_max_new_tokens = 8;
  run.spec.steps = 60;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  RunSteps(engine->get(), 60);
  const auto report = (*engine)->Finish();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->exact_match.has_value());
  EXPECT_EQ(report->exact_match->correct, 2);
  EXPECT_EQ(report->exact_match->total, 3);
}

TEST(Engine, WarnsThatTheFoldersTokenizerIsNotExported) {
  TinyRun run;
  run.folder.Write("model/tokenizer.json", "{}");
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_THAT((*engine)->Finish()->warnings, ::testing::Contains(HasSubstr("byte tokenizer")));
  ASSERT_TRUE((*engine)->Export(run.folder.At("export")).ok());
  EXPECT_FALSE(std::filesystem::exists(run.folder.At("export/tokenizer.json")));
}

TEST(Engine, RefusesWhatDoesNotFit) {
  TinyRun run;
  run.backend = *kernels::OpenBackend("cpu", {.memory_bytes = 1 << 20, .threads = 1});
  EXPECT_THAT(PrepareMessage(&run, absl::StatusCode::kResourceExhausted),
              HasSubstr("the device has 1048576"));
}

TEST(Engine, RefusesRowsLongerThanTheModelsPositions) {
  TinyRun run;
  run.spec.data.sequence_length = 129;
  EXPECT_THAT(PrepareMessage(&run, absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("129"), HasSubstr("128")));
}

TEST(Engine, RefusesATokenizerThatTheEmbeddingCannotHold) {
  TinyRun run;
  std::string config = octavo::testing_support::kTinyConfig;
  config.replace(config.find("260"), 3, "256");
  run.folder.Write("model/config.json", config);
  EXPECT_THAT(PrepareMessage(&run, absl::StatusCode::kInvalidArgument), HasSubstr("257"));
}

TEST(Engine, RefusesWeightsThatAreNotThere) {
  TinyRun run;
  run.spec.model.initialisation = ModelSpec::Initialisation::kWeights;
  EXPECT_THAT(PrepareMessage(&run, absl::StatusCode::kNotFound), HasSubstr("model.safetensors"));
}

TEST(Engine, RefusesPatternsThatMatchNothing) {
  TinyRun run;
  run.spec.recipe.keep_bf16 = {"model.layers.7.*"};
  EXPECT_THAT(PrepareMessage(&run, absl::StatusCode::kInvalidArgument),
              HasSubstr("model.layers.7.*"));
}

}  // namespace
}  // namespace octavo::engine
