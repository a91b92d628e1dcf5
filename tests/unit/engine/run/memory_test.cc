// The memory estimate against the resident set of a process that trains: of a process of its own,
// since the peak of this one belongs to whatever ran before.
#include "worker/engine/observe/memory.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/model_fixture.h"
#include "worker/engine/checkpoint/random_weights.h"
#include "worker/engine/inputs.h"
#include "worker/engine/optimizer/optimizer.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::Pack;
using ::octavo::testing_support::RandomDocument;

// Large enough that what the libraries take does not show, small enough for seconds.
ModelConfig MediumModel() {
  ModelConfig config;
  config.shape = {.vocabulary = 16384,
                  .hidden = 512,
                  .intermediate = 1536,
                  .layers = 6,
                  .heads = 8,
                  .kv_heads = 4,
                  .head_dim = 64,
                  .tied = true};
  return config;
}

// Two steps and an evaluation in BF16 of `tokens` tokens each; the device bytes that were planned.
int64_t TrainTwoSteps(const ModelConfig& config, RecipeSpec::Precision precision, int64_t tokens) {
  const auto backend = *kernels::OpenBackend("cpu", {.threads = 2});
  const ParameterLayout layout = LayOutParameters(config.shape);
  const Parameters parameters = *Parameters::Create(layout, backend.get());
  const auto transformer = *Transformer::Create(
      {.config = config, .recipe = {.precision = precision, .keep_bf16 = {}}, .max_tokens = tokens},
      layout, backend.get());
  const Optimizer optimizer({}, backend.get());
  CHECK(InitialiseWeights(parameters, 1, 0.02, backend.get()).ok());
  CHECK(transformer->UpdateWeights(parameters, 1).ok());
  const Batch batch = Pack({{RandomDocument(tokens, config.shape.vocabulary, 1)}});
  for (int step = 0; step < 2; ++step) {
    CHECK(transformer->step().Begin(1e-4).ok());
    CHECK(transformer->Train(batch, 1e-3, parameters).ok());
    CHECK(optimizer.Update(parameters, transformer->step()).ok());
    CHECK(transformer->UpdateWeights(parameters, 1).ok());
    CHECK(transformer->Evaluate(batch, PolicyTable()).ok());
  }
  const bool fp8 = precision == RecipeSpec::Precision::kFp8;
  return EstimateMemory(config.shape, {.micro_batch = 1, .sequence = tokens, .fp8 = fp8},
                        PlaceOf(backend->Describe()))
      .device();
}

constexpr char kPrecision[] = "OCTAVO_TEST_CHILD_PRECISION";

// The child: it starts with a small run, so that code and libraries are there before it counts.
// That run's memory is free again when the large one starts.
TEST(ResidentMemoryChild, Trains) {
  const char* const precision = std::getenv(kPrecision);
  if (precision == nullptr) GTEST_SKIP() << "run by ResidentMemory.GrowsByWhatThePlanSays";
  const auto recipe =
      std::string(precision) == "fp8" ? RecipeSpec::Precision::kFp8 : RecipeSpec::Precision::kBf16;
  ModelConfig small = MediumModel();
  small.shape.vocabulary = 256;
  small.shape.layers = 1;
  const int64_t planned_before = TrainTwoSteps(small, recipe, 64);
  const int64_t before = PeakResidentBytes();
  const int64_t planned = TrainTwoSteps(MediumModel(), recipe, 1024) - planned_before;
  std::printf("planned %s grown %s\n", absl::StrCat(planned).c_str(),
              absl::StrCat(PeakResidentBytes() - before).c_str());
}

class ResidentMemory : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Recipes, ResidentMemory, ::testing::Values("fp8", "bf16"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(ResidentMemory, GrowsByWhatThePlanSays) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own beside ours";
#endif
  char program[4096] = {};  // /proc/self of the shell would be the shell
  ASSERT_GT(readlink("/proc/self/exe", program, sizeof(program) - 1), 0);
  const std::string command = absl::StrCat(kPrecision, "=", GetParam(), " ", program,
                                           " --gtest_filter=ResidentMemoryChild.*");
  FILE* const child = popen(command.c_str(), "r");
  ASSERT_NE(child, nullptr);
  std::string output;
  char line[256];
  while (std::fgets(line, sizeof(line), child) != nullptr) output += line;
  EXPECT_EQ(pclose(child), 0) << output;
  long long planned = 0, grown = 0;
  const size_t at = output.find("planned ");
  ASSERT_NE(at, std::string::npos) << output;
  ASSERT_EQ(std::sscanf(output.c_str() + at, "planned %lld grown %lld", &planned, &grown), 2);
  EXPECT_NEAR(static_cast<double>(grown), static_cast<double>(planned),
              0.03 * static_cast<double>(planned));
}

}  // namespace
}  // namespace octavo::engine
