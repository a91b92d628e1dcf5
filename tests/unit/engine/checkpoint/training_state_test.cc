// A checkpoint is whole or not there, whatever happens to the process or the disk meanwhile.
#include "worker/engine/checkpoint/training_state.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"
#include "worker/engine/checkpoint/chunks.h"
#include "worker/engine/checkpoint/random_weights.h"
#include "worker/engine/checkpoint/run_state_json.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::HasSubstr;

constexpr ModelShape kShape = {.vocabulary = 64,
                               .hidden = 32,
                               .intermediate = 48,
                               .layers = 1,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 16};

// Master weights and moments that differ from each other.
class State {
 public:
  State()
      : backend_(*kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = 1})),
        parameters_(*Parameters::Create(LayOutParameters(kShape), backend_.get())) {}

  void Fill() {
    uint64_t seed = 0;
    for (float* array : Arrays()) {
      for (const ParameterSpec& spec : parameters_.layout().parameters) {
        std::vector<float> values(static_cast<size_t>(spec.count()));
        FillNormal(seed, spec.name, 0, absl::MakeSpan(values));
        CHECK(backend_->CopyIn(array + spec.offset, values.data(), 4 * spec.count()).ok());
      }
      ++seed;
    }
  }
  std::vector<float*> Arrays() const {
    return {parameters_.master(), parameters_.exp_avg(), parameters_.exp_avg_sq()};
  }
  std::vector<float> Values(const float* array) const {
    std::vector<float> values;
    for (const ParameterSpec& spec : parameters_.layout().parameters) {
      CHECK(ReadChunks(backend_.get(), array + spec.offset, spec.count(),
                       [&](absl::Span<const float> piece) {
                         values.insert(values.end(), piece.begin(), piece.end());
                         return absl::OkStatus();
                       })
                .ok());
    }
    return values;
  }
  absl::Status Save(const std::string& folder) const {
    RunState state;
    state.step = 3;
    TemporaryFolder model;
    model.Write("config.json", R"({"a": 1})");
    model.Write("NOTICE", "text");
    const ModelFiles files = *ModelFiles::Read(model.path(), {.with_tokenizer = true});
    return SaveCheckpoint(folder, {.state = &state, .model = &files, .parameters = &parameters_},
                          backend_.get())
        .status();
  }
  absl::Status Load(const std::string& folder) const {
    absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(folder);
    return reader.ok() ? reader->Load(parameters_, backend_.get()) : reader.status();
  }
  void Poison(float* array, float value) {
    CHECK(backend_->CopyIn(array + 5, &value, sizeof(value)).ok());
  }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  Parameters parameters_;
};

TEST(Checkpoint, BringsEveryBitBack) {
  TemporaryFolder root;
  State saved;
  saved.Fill();
  ASSERT_TRUE(saved.Save(root.At("c")).ok());
  State loaded;
  ASSERT_TRUE(loaded.Load(root.At("c")).ok());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(loaded.Values(loaded.Arrays()[i]), saved.Values(saved.Arrays()[i]));
  }
  EXPECT_EQ(*ReadFile(root.At("c/model/config.json"), 100), R"({"a": 1})");
  EXPECT_EQ(*ReadFile(root.At("c/model/NOTICE"), 100), "text");
}

TEST(Checkpoint, IsChangedWhenAFileOfItsModelIs) {
  TemporaryFolder root;
  State state;
  state.Fill();
  ASSERT_TRUE(state.Save(root.At("c")).ok());
  root.Write("c/model/config.json", R"({"a": 2})");
  const absl::Status changed = state.Load(root.At("c"));
  EXPECT_TRUE(absl::IsDataLoss(changed));
  EXPECT_THAT(std::string(changed.message()), HasSubstr("model/config.json"));
}

// A manifest may name what lies beside it and nothing else.
TEST(Checkpoint, ListsNoFileOutsideOfIt) {
  for (const char* name : {"../secret", "model/../../secret", "/etc/passwd", "model/", ""}) {
    TemporaryFolder root;
    State state;
    state.Fill();
    ASSERT_TRUE(state.Save(root.At("c")).ok());
    nlohmann::json manifest = nlohmann::json::parse(*ReadFile(root.At("c/manifest.json"), 1 << 20));
    manifest["files"].push_back({{"name", name}, {"bytes", 0}, {"sha256", Sha256Of("")}});
    root.Write("c/manifest.json", manifest.dump());
    const absl::Status status = CheckpointReader::Open(root.At("c")).status();
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("no file of a checkpoint")) << name;
  }
}

TEST(Checkpoint, RefusesMomentsThatAreNotFinite) {
  TemporaryFolder root;
  State state;
  state.Fill();
  state.Poison(state.Arrays()[2], NAN);
  const absl::Status saved = state.Save(root.At("c"));
  EXPECT_TRUE(absl::IsOutOfRange(saved));
  EXPECT_THAT(std::string(saved.message()),
              AllOf(HasSubstr("exp_avg_sq"), HasSubstr("model.embed_tokens.weight"),
                    HasSubstr("element 5")));
}

// The kernel kills the writer at the first byte beyond a limit: in state.json, in the
// header of the first array, within its data.
TEST(Checkpoint, IsNotThereWhenItsWriterWasKilled) {
  TemporaryFolder root;
  for (const rlim_t limit : {0, 1, 300, 1000, 10'000, 40'000}) {
    SCOPED_TRACE(limit);
    const pid_t writer = fork();
    if (writer == 0) {
      State state;
      state.Fill();
      const rlimit none = {0, 0};
      const rlimit bytes = {limit, limit};
      if (setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_FSIZE, &bytes) != 0) _exit(1);
      (void)state.Save(root.At("c"));
      _exit(2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
    EXPECT_FALSE(std::filesystem::exists(root.At("c")));
  }
  State state;
  state.Fill();
  ASSERT_TRUE(state.Save(root.At("c")).ok());
  EXPECT_TRUE(state.Load(root.At("c")).ok());
  // The save has cleaned up after all of the killed ones.
  const std::filesystem::directory_iterator left(root.path());
  EXPECT_EQ(std::distance(begin(left), end(left)), 1);
}

// A file system of 64 KiB, seen by this process alone; false where that is not allowed.
bool MountSmallDisk(const std::string& folder) {
  const int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;
  return unshare(flags) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") == 0;
}

TEST(Checkpoint, SaysThatTheDiskIsFullAndLeavesNothingOnIt) {
  TemporaryFolder root;
  constexpr int kNotAllowed = 77;
  const pid_t writer = fork();
  if (writer == 0) {
    if (!MountSmallDisk(root.path())) _exit(kNotAllowed);
    State state;
    state.Fill();
    const absl::Status saved = state.Save(root.At("c"));
    std::error_code error;
    const bool empty = std::filesystem::is_empty(root.path(), error);
    _exit(absl::IsResourceExhausted(saved) && empty ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "skipped: no mounts are allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Checkpoint, OfAnotherModelIsRefused) {
  TemporaryFolder root;
  State state;
  state.Fill();
  ASSERT_TRUE(state.Save(root.At("c")).ok());
  ModelShape other = kShape;
  other.intermediate = 64;
  const auto backend = *kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = 1});
  const Parameters parameters = *Parameters::Create(LayOutParameters(other), backend.get());
  const absl::Status loaded = CheckpointReader::Open(root.At("c"))->Load(parameters, backend.get());
  EXPECT_TRUE(absl::IsFailedPrecondition(loaded));
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("mlp.gate_proj.weight"));
}

RunState FullState() {
  RunState state;
  state.step = 1;
  state.applied_updates = 2;
  state.samples = 3;
  state.total_tokens = int64_t{1} << 60;
  state.nonfinite_steps = 5;
  state.consecutive_nonfinite_steps = 6;
  state.empty_steps = 7;
  state.initial_holdout =
      HoldoutReport{.tokens = 8, .tokens_sha256 = "abc", .loss_bf16 = 0.1, .loss_fp8 = 1.0 / 3};
  state.fingerprint = {{"seed", "17"}, {"data", "x"}};
  return state;
}

TEST(RunStateJson, ReadsWhatItPrints) {
  const std::string text = PrintRunState(FullState());
  const absl::StatusOr<RunState> read = ParseRunState(text, "state.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PrintRunState(*read), text);
  EXPECT_EQ(read->total_tokens, int64_t{1} << 60);
  EXPECT_EQ(*read->initial_holdout->loss_fp8, 1.0 / 3);
  EXPECT_EQ(read->fingerprint, FullState().fingerprint);
}

TEST(RunStateJson, KeepsALossThatIsNotFinite) {
  RunState state = FullState();
  state.initial_holdout->loss_bf16 = INFINITY;
  const absl::StatusOr<RunState> read = ParseRunState(PrintRunState(state), "state.json");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::isnan(read->initial_holdout->loss_bf16));
}

TEST(RunStateJson, NamesTheKeyThatIsWrong) {
  std::string text = PrintRunState(FullState());
  text.replace(text.find("\"samples\": 3"), 12, "\"samples\": \"\"");
  const absl::StatusOr<RunState> read = ParseRunState(text, "c/state.json");
  EXPECT_TRUE(absl::IsDataLoss(read.status()));
  EXPECT_THAT(std::string(read.status().message()),
              AllOf(HasSubstr("c/state.json"), HasSubstr("\"samples\"")));
}

TEST(RunStateJson, RefusesCountsBelowZeroAndBeyondSixtyThreeBits) {
  for (const char* count : {"-3", "9223372036854775808", "18446744073709551615", "3.0", "1e30"}) {
    std::string text = PrintRunState(FullState());
    text.replace(text.find("\"samples\": 3"), 12, absl::StrCat("\"samples\": ", count));
    const absl::Status read = ParseRunState(text, "c/state.json").status();
    EXPECT_TRUE(absl::IsDataLoss(read)) << count << ": " << read;
    EXPECT_THAT(std::string(read.message()), HasSubstr("\"samples\"")) << count;
  }
}

TEST(RunStateJson, SurvivesObjectsThatAreNone) {
  for (const char* key : {"initial_holdout", "fingerprint"}) {
    for (const char* value : {"[]", "7", "\"text\"", "null", "[[\"a\"]]"}) {
      nlohmann::json json = nlohmann::json::parse(PrintRunState(FullState()));
      json[key] = nlohmann::json::parse(value);
      const absl::Status read = ParseRunState(json.dump(), "c/state.json").status();
      EXPECT_TRUE(absl::IsDataLoss(read)) << key << " " << value << ": " << read;
    }
  }
}

TEST(RunStateJson, RefusesAnotherVersion) {
  std::string text = PrintRunState(FullState());
  text.replace(text.find("\"format_version\": 2"), 19, "\"format_version\": 1");
  EXPECT_TRUE(absl::IsFailedPrecondition(ParseRunState(text, "state.json").status()));
}

}  // namespace
}  // namespace octavo::engine
