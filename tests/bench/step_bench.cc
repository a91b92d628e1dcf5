// A whole training step of a model with random weights, driven through the engine as a job drives
// it: batches from a corpus, forward, backward, norm, AdamW, new copies of the weights.
//
//   step_bench --model smollm2-135m --micro-batch 4 --sequence 1024 --steps 3
//
// Each recipe runs in a process of its own, so that its highest resident memory is its own. The
// first step, which warms caches and builds kernels, is not counted.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "tests/bench/figure.h"
#include "tests/bench/models.h"
#include "worker/engine/engine.h"
#include "worker/engine/inputs.h"

namespace octavo::bench {
namespace {

struct Options {
  std::vector<std::string> models = {"smollm2-135m", "qwen-135m"};
  std::vector<int64_t> micro_batches = {4, 8};
  int64_t sequence = 1024;
  int64_t steps = 3;  // that are counted
  int threads = 0;
  std::string folder;  // for model and text
};

// Wall seconds of each kind of operation.
using OperationSeconds = std::array<double, kernels::kOperationKinds>;

// Crosses a pipe as bytes.
struct Measurement {
  double seconds;            // of the median step
  double processor_seconds;  // of the step that took the fewest; all threads together
  double tokens;             // of a step
  double peak_bytes;
  double plan_bytes;
  double mean_seconds;          // of a step; what `operations` are parts of
  OperationSeconds operations;  // of the mean step
};

engine::RunSpec MakeSpec(const Options& options, const std::string& model, int64_t micro_batch,
                         bool fp8) {
  engine::RunSpec spec;
  spec.model = {.folder = absl::StrCat(options.folder, "/", model),
                .initialisation = engine::ModelSpec::Initialisation::kRandom};
  spec.data.files = {options.folder + "/text.txt"};
  spec.data.tokenizer = engine::DataSpec::TokenizerKind::kByte;
  spec.data.sequence_length = options.sequence;
  spec.recipe.precision =
      fp8 ? engine::RecipeSpec::Precision::kFp8 : engine::RecipeSpec::Precision::kBf16;
  spec.optimizer.learning_rate = 1e-4;
  spec.optimizer.min_learning_rate = 1e-5;
  spec.evaluation.holdout_tokens = 0;
  spec.micro_batch = micro_batch;
  spec.steps = options.steps + 1;
  spec.seed = 1;
  spec.probe_every_steps = 0;
  return spec;
}

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

OperationSeconds SecondsSoFar(const kernels::Backend& backend) {
  OperationSeconds seconds;
  for (size_t kind = 0; kind < seconds.size(); ++kind) {
    seconds[kind] = backend.tallies()[kind].seconds;
  }
  return seconds;
}

absl::StatusOr<Measurement> MeasureHere(const engine::RunSpec& spec, int threads) {
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                   kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = threads}));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> engine,
                   engine::Engine::Prepare(spec, "", backend.get()));
  backend->TimeOperations();
  const engine::Place place = engine::PlaceOf(backend->Describe());
  std::vector<double> seconds;
  OperationSeconds warm_up = {};
  Measurement result = {};
  result.processor_seconds = std::numeric_limits<double>::infinity();
  while (!engine->done()) {
    const double start = ProcessorSeconds();
    ASSIGN_OR_RETURN(const engine::StepReport step, engine->Step());
    if (step.step == 1) {
      warm_up = SecondsSoFar(*backend);
    } else {
      seconds.push_back(step.seconds);
      result.processor_seconds = std::min(result.processor_seconds, ProcessorSeconds() - start);
    }
    result.tokens = static_cast<double>(step.step_tokens);
    result.peak_bytes = static_cast<double>(step.peak_memory_bytes);
  }
  const auto count = static_cast<double>(seconds.size());
  const OperationSeconds all = SecondsSoFar(*backend);
  for (size_t kind = 0; kind < all.size(); ++kind) {
    result.operations[kind] = (all[kind] - warm_up[kind]) / count;
  }
  for (const double value : seconds) result.mean_seconds += value / count;
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  result.seconds = seconds[seconds.size() / 2];
  result.plan_bytes = static_cast<double>(engine::Inspect(spec, place).memory.total());
  return result;
}

// MeasureHere in a child process. It is forked before this process has started any thread.
absl::StatusOr<Measurement> MeasureApart(const engine::RunSpec& spec, int threads) {
  int ends[2];
  if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) {
    const absl::StatusOr<Measurement> measured = MeasureHere(spec, threads);
    if (!measured.ok()) {
      std::fprintf(stderr, "step_bench: %s\n", std::string(measured.status().message()).c_str());
    }
    const bool sent =
        measured.ok() && write(ends[1], &*measured, sizeof(*measured)) == sizeof(*measured);
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  Measurement result = {};
  const bool received = read(ends[0], &result, sizeof(result)) == sizeof(result);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!received || status != 0) return absl::InternalError("a measurement ended without a result");
  return result;
}

void PrintMeasurement(const std::string& name, const Measurement& measured,
                      const Measurement* bf16) {
  const auto against = [&](double Measurement::*value) -> std::optional<Baseline> {
    if (bf16 == nullptr) return std::nullopt;
    return Baseline{"bf16", bf16->*value};
  };
  const double rate = measured.tokens / measured.seconds;
  std::optional<Baseline> bf16_rate;
  if (bf16 != nullptr) bf16_rate = Baseline{"bf16", bf16->tokens / bf16->seconds};
  Print({name + "/step_seconds", measured.seconds, "s", against(&Measurement::seconds)});
  Print({name + "/step_processor_seconds", measured.processor_seconds, "s of processor time",
         against(&Measurement::processor_seconds)});
  Print({name + "/tokens_per_second", rate, "tokens/s", bf16_rate});
  Print({name + "/peak_memory", measured.peak_bytes, "bytes", against(&Measurement::peak_bytes)});
  Print({name + "/peak_memory_of_plan", measured.peak_bytes, "bytes",
         Baseline{"memory estimate", measured.plan_bytes}});
}

// Where the mean step's time went; kinds that did not run are left out.
void PrintOperations(const std::string& name, const Measurement& measured) {
  const Baseline step = {"mean step", measured.mean_seconds};
  double outside = measured.mean_seconds;
  for (size_t kind = 0; kind < measured.operations.size(); ++kind) {
    const double seconds = measured.operations[kind];
    outside -= seconds;
    if (seconds == 0) continue;
    Print({absl::StrCat(name, "/operation/", kernels::kOperationNames[kind]), seconds, "s", step});
  }
  Print({name + "/operation/none", outside, "s", step});
}

absl::Status MeasureShape(const Options& options, const std::string& model, int64_t micro_batch) {
  const std::string name = absl::StrCat("step/", model, "/", micro_batch, "x", options.sequence);
  ASSIGN_OR_RETURN(const Measurement bf16,
                   MeasureApart(MakeSpec(options, model, micro_batch, false), options.threads));
  PrintMeasurement(name + "/bf16", bf16, nullptr);
  PrintOperations(name + "/bf16", bf16);
  ASSIGN_OR_RETURN(const Measurement fp8,
                   MeasureApart(MakeSpec(options, model, micro_batch, true), options.threads));
  PrintMeasurement(name + "/fp8", fp8, &bf16);
  PrintOperations(name + "/fp8", fp8);
  return absl::OkStatus();
}

absl::Status Measure(const Options& options) {
  RETURN_IF_ERROR(WriteRandomText(options.folder));
  for (const std::string& model : options.models) {
    RETURN_IF_ERROR(WriteModelConfig(options.folder + "/" + model, model));
    for (const int64_t micro_batch : options.micro_batches) {
      RETURN_IF_ERROR(MeasureShape(options, model, micro_batch));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, const char* const* argv) {
  SetCommand(argc, argv);
  Options options;
  CLI::App app("Seconds and memory of a whole training step, FP8 against BF16.", "step_bench");
  app.add_option("--model", options.models, "smollm2-135m, qwen-135m or quickstart")
      ->check(CLI::IsMember(ModelNames()));
  app.add_option("--micro-batch", options.micro_batches, "Rows of a step");
  app.add_option("--sequence", options.sequence, "Tokens of a row")->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", options.steps, "Steps that count, after one that does not")
      ->check(CLI::Range(1, 1000));
  app.add_option("--threads", options.threads, "0: one per core");
  app.add_option("--folder", options.folder, "For the model and the text; is made")->required();
  int exit_code = 0;
  if (!ParseCommandLine(&app, argc, argv, &exit_code)) return exit_code;
  const absl::Status status = Measure(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "step_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) { return octavo::bench::Main(argc, argv); }
