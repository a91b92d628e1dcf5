// What cannot work ends as FAILED with its cause and one clear line, and nothing else breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "tests/endtoend/cluster.h"

namespace octavo::endtoend {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct BadInput {
  const char* name;
  std::function<void(const Cluster&, v1::Stage*)> spoil;
  const char* complaint;  // part of the message
};

// Without it GoogleTest names the case by the bytes of its pointers.
void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

std::string TruncatedSafetensors() {
  const std::string header =
      R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[260,64],"data_offsets":[0,33280]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(100, 'x');  // of 33280
}

const BadInput kBadInputs[] = {
    {"MissingModelFolder",
     [](const Cluster&, v1::Stage* stage) { stage->mutable_model()->set_folder("/nonexistent"); },
     "/nonexistent"},
    {"ModelWithoutWeights",
     [](const Cluster&, v1::Stage* stage) {
       stage->mutable_model()->set_initialisation("weights");
     },
     "safetensors"},
    {"TruncatedSafetensors",
     [](const Cluster& cluster, v1::Stage* stage) {
       cluster.Write("model/model.safetensors", TruncatedSafetensors());
       stage->mutable_model()->set_initialisation("weights");
     },
     "model.safetensors"},
    {"NonsenseConfig",
     [](const Cluster& cluster, v1::Stage*) {
       cluster.Write("model/config.json", "{\"model_type\": \"llama\", ");
     },
     "config.json"},
    {"UnknownFamily",
     [](const Cluster& cluster, v1::Stage*) {
       cluster.Write("model/config.json", R"({"model_type": "no-such-family"})");
     },
     "no-such-family"},
    {"EmptyCorpus",
     [](const Cluster& cluster, v1::Stage* stage) {
       stage->mutable_data()->set_files(0, cluster.Write("empty.txt", ""));
     },
     "empty.txt"},
    {"MissingCorpus",
     [](const Cluster&, v1::Stage* stage) {
       stage->mutable_data()->set_files(0, "/nonexistent/a.txt");
     },
     "/nonexistent/a.txt"},
    {"SequenceTooLong",
     [](const Cluster&, v1::Stage* stage) { stage->mutable_data()->set_sequence_length(129); },
     "128"},
    {"VocabularyTooSmall",
     [](const Cluster& cluster, v1::Stage*) {
       std::string config = ReadFile(cluster.folder() + "/model/config.json", 1 << 20).value();
       config.replace(config.find("260"), 3, "256");
       cluster.Write("model/config.json", config);
     },
     "257"},
    {"NoSuchModule",
     [](const Cluster&, v1::Stage* stage) { stage->mutable_recipe()->add_keep_bf16("head.*"); },
     "head.*"},
};

class BadInputs : public ::testing::TestWithParam<BadInput> {};

// A coordinator that already knows better may refuse the job at once; both ends are good ones.
TEST_P(BadInputs, EndInOneClearLineAndLeaveTheDaemonsAlive) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  v1::JobSpec spec = cluster.TinyJob(3);
  GetParam().spoil(cluster, spec.mutable_stages(0));
  const auto submitted = cluster.TrySubmit(spec);
  if (submitted.ok()) {
    const v1::Job job = cluster.AwaitEnd(submitted->id());
    EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(job.failure().cause(), v1::FAILURE_CAUSE_INVALID_INPUT) << job.ShortDebugString();
    EXPECT_THAT(job.failure().message(), HasSubstr(GetParam().complaint));
    EXPECT_THAT(job.failure().message(), Not(HasSubstr("\n")));
    EXPECT_EQ(job.attempts_size(), 1) << "bad input is not retried";
  } else {
    EXPECT_EQ(submitted.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(submitted.status().message()), HasSubstr(GetParam().complaint));
  }
  EXPECT_TRUE(cluster.coordinator().running());
  EXPECT_TRUE(cluster.worker().running());
}

INSTANTIATE_TEST_SUITE_P(Table, BadInputs, ::testing::ValuesIn(kBadInputs),
                         [](const auto& test) { return test.param.name; });

// A limit on the size of files stands in for a full disk: both fail in the middle of a write.
TEST(FullDisk, FailsTheJobAndLeavesNothingHalfDone) {
  Cluster cluster;
  cluster.StartCoordinator();
  Cluster::WorkerOptions options;
  options.file_bytes = 64 << 10;  // a checkpoint has a MiB
  cluster.StartWorker(options);
  const std::string id = cluster.Submit(cluster.TinyJob(3));
  const v1::Job job = cluster.AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().cause(), v1::FAILURE_CAUSE_STORAGE) << job.ShortDebugString();
  EXPECT_FALSE(job.has_checkpoint());
  EXPECT_EQ(job.attempts_size(), 1);
  std::vector<std::string> left;
  for (const auto& entry :
       fs::directory_iterator(cluster.folder() + "/out/" + id + "/checkpoints")) {
    left.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(left, IsEmpty());
  EXPECT_FALSE(fs::exists(cluster.folder() + "/out/" + id + "/export.epoch-1"));
  EXPECT_TRUE(cluster.worker().running());
}

// A user who understates the need of a job gets it placed; then the engine's own plan decides.
TEST(Memory, ThatDoesNotSufficeFailsTheJobBeforeItsFirstStep) {
  Cluster cluster;
  cluster.StartCoordinator();
  Cluster::WorkerOptions options;
  options.memory_bytes = 1 << 20;
  cluster.StartWorker(options);
  v1::JobSpec spec = cluster.TinyJob(3);
  spec.mutable_resources()->set_memory_bytes(1 << 19);
  const v1::Job job = cluster.AwaitEnd(cluster.Submit(spec));
  EXPECT_EQ(job.failure().cause(), v1::FAILURE_CAUSE_OUT_OF_MEMORY) << job.ShortDebugString();
  EXPECT_EQ(job.attempts_size(), 1) << "it would not fit a second time either";
}

TEST(OutputFolder, ThatIsNoFolderFailsTheJobAsStorage) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  v1::JobSpec spec = cluster.TinyJob(3);
  spec.set_output_folder(cluster.Write("a-file", "x"));
  const v1::Job job = cluster.AwaitEnd(cluster.Submit(spec));
  EXPECT_EQ(job.failure().cause(), v1::FAILURE_CAUSE_STORAGE) << job.ShortDebugString();
}

}  // namespace
}  // namespace octavo::endtoend
