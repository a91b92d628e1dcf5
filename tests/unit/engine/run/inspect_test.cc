// Everything that Prepare would refuse, all at once, and what a run will need.
#include "gmock/gmock.h"
#include "tests/support/tiny_run.h"
#include "worker/engine/inspect_corpus.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TinyRun;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto Problem(const std::string& field, const std::string& message) {
  return AllOf(Field("field", &InspectionProblem::field, field),
               Field("message", &InspectionProblem::message, HasSubstr(message)));
}

const Place kPlace = {.backend = "cpu", .machine = {.threads = 1, .float32_products = false}};

TEST(Inspect, PlansARunWithoutProblems) {
  TinyRun run;
  const Inspection inspection = Inspect(run.spec, kPlace);
  EXPECT_THAT(inspection.problems, IsEmpty());
  const auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(inspection.parameters, (*engine)->Finish()->parameters);
  EXPECT_EQ(inspection.tokens_per_step, 2 * 2 * 48);
  EXPECT_GT(inspection.train_tokens, 3000);
  EXPECT_EQ(inspection.train_tokens % 48, 0);
  EXPECT_DOUBLE_EQ(inspection.epochs, 8.0 * 4 * 48 / static_cast<double>(inspection.train_tokens));
  EXPECT_GE(inspection.memory.corpus, 4 * inspection.train_tokens);
  ASSERT_TRUE((*engine)->SaveCheckpoint(run.folder.At("c")).ok());
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(run.folder.At("c"))) {
    if (file.is_regular_file()) bytes += static_cast<int64_t>(file.file_size());
  }
  EXPECT_NEAR(static_cast<double>(inspection.checkpoint_bytes), static_cast<double>(bytes),
              0.03 * static_cast<double>(bytes));
}

TEST(Inspect, ListsEveryProblemAtOnce) {
  TinyRun run;
  run.spec.model.initialisation = ModelSpec::Initialisation::kWeights;
  run.spec.data.sequence_length = 129;
  run.spec.data.files.push_back(run.folder.At("absent.txt"));
  run.spec.recipe.keep_bf16 = {"lm_heed"};
  run.spec.evaluation.exact_match_file = run.folder.Write("em.jsonl", "{}");
  EXPECT_THAT(
      Inspect(run.spec, kPlace).problems,
      ElementsAre(Problem("recipe.keep_bf16", "lm_heed"), Problem("data.sequence_length", "129"),
                  Problem("model.folder", "model.safetensors"),
                  Problem("data.files[1]", "absent.txt"),
                  Problem("evaluation.exact_match_file", "line 1")));
}

TEST(Inspect, NamesEveryBadFileOfACorpusWhateverElseIsWrong) {
  TinyRun run;
  run.spec.data.files = {run.folder.Write("latin.txt", "caf\xE9"), run.spec.data.files[0],
                         run.folder.Write("row.jsonl", "{\"text\": []}\n")};
  const auto bad_rows = [] {
    return std::vector{Problem("data.files[0]", "latin.txt:1:4"),
                       Problem("data.files[2]", "row.jsonl:1")};
  };
  EXPECT_THAT(Inspect(run.spec, kPlace).problems, ::testing::ElementsAreArray(bad_rows()));
  run.spec.model.folder = run.folder.At("nowhere");
  run.spec.data.files.push_back(run.folder.At("absent.txt"));
  EXPECT_THAT(Inspect(run.spec, kPlace).problems,
              ElementsAre(Problem("model.folder", "nowhere"),
                          Problem("data.files[3]", "absent.txt"), bad_rows()[0], bad_rows()[1]));
}

TEST(Inspect, SaysThatThereIsNoModel) {
  TinyRun run;
  run.spec.model.folder = run.folder.At("nowhere");
  EXPECT_THAT(Inspect(run.spec, kPlace).problems, ElementsAre(Problem("model.folder", "nowhere")));
  run.spec.model.folder = run.folder.path();
  EXPECT_THAT(Inspect(run.spec, kPlace).problems,
              ElementsAre(Problem("model.folder", "config.json")));
}

TEST(Inspect, ReadsNoTensorButSeesThatAFileIsCutOff) {
  TinyRun run;
  auto engine = run.Prepare();
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->Export(run.folder.At("export")).ok());
  run.spec.model = {.folder = run.folder.At("export"),
                    .initialisation = ModelSpec::Initialisation::kWeights};
  EXPECT_THAT(Inspect(run.spec, kPlace).problems, IsEmpty());
  const std::string weights = run.folder.At("export/model.safetensors");
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 2);
  EXPECT_THAT(Inspect(run.spec, kPlace).problems, ElementsAre(Problem("model.folder", "cut off")));
}

TEST(Inspect, NamesTheFileWithABadRow) {
  TinyRun run;
  run.spec.data.files.push_back(
      run.folder.Write("bad.jsonl", "{\"text\": \"fine\"}\n{\"other\": 3}\n"));
  EXPECT_THAT(Inspect(run.spec, kPlace).problems,
              ElementsAre(Problem("data.files[1]", "bad.jsonl")));
}

// 65 MiB, of which the last row is broken: too late to be seen. The first one is.
TEST(Inspect, SamplesALargeCorpus) {
  TinyRun run;
  std::string text;
  while (text.size() < (size_t{65} << 20)) {
    text += "{\"text\": \"" + std::string(100'000, 'x') + "\"}\n";
  }
  run.spec.data.files = {run.folder.Write("large.jsonl", text + "{\"other\": 3}\n")};
  const Inspection inspection = Inspect(run.spec, kPlace);
  EXPECT_THAT(inspection.problems, IsEmpty());
  EXPECT_THAT(inspection.warnings, ElementsAre(HasSubstr("only the first rows")));
  EXPECT_EQ(inspection.train_tokens, 0);
  run.folder.Write("large.jsonl", "{\"other\": 3}\n" + text);
  EXPECT_THAT(Inspect(run.spec, kPlace).problems,
              ElementsAre(Problem("data.files[0]", run.folder.At("large.jsonl"))));
}

}  // namespace
}  // namespace octavo::engine
