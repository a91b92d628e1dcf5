// How many steps a job needs until it has learnt its task, in BF16 and under another recipe, paired
// over seeds: both jobs of a pair start from the same weights and read the same data.
//
//   learning_bench JOB.yaml --seeds 1 2 3 --target 1.25
//   learning_bench JOB.yaml --target 1.25 --candidate 'forward=recipe.rules=[{dgrad: bf16, wgrad:
//   bf16}]'
//
// The candidate is the recipe fp8, or as many variants of it as --candidate names.
// A pair's ratio is steps of the candidate / steps of BF16. Losses of single steps scatter, so the
// target counts as reached when the mean loss of the last `window` steps is below it. The interval
// is Student's over the logarithms of the ratios.
#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/command_line.h"
#include "base/file.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "proto/support/job_spec.h"
#include "tests/bench/figure.h"
#include "worker/engine/engine.h"
#include "worker/trainer/run_spec.h"

namespace octavo::bench {
namespace {

// The recipe fp8 with one setting of the stage changed.
struct Candidate {
  std::string name = "fp8";
  std::string override;  // "path=value" below the stage; empty: none
};

struct Options {
  std::string job_file;
  std::vector<std::string> overrides;   // of all jobs, "path=value"
  std::vector<std::string> candidates;  // "NAME=PATH=VALUE"; empty: fp8 as it is
  std::vector<uint64_t> seeds = {1, 2, 3, 4, 5, 6};
  double target = 0;  // 0: none, every run is trained to its end
  int64_t window = 50;
  int64_t max_steps = 0;  // 0: the job's
  int threads = 0;
  bool finish = false;
  std::string curves;  // a file that gets "recipe seed step loss" lines; empty: none
};

struct Result {
  int64_t steps = 0;  // until the target, or all of them
  bool reached = false;
  double seconds = 0;
  double mean_loss = 0;  // of the last `window` steps
  engine::FinalReport report;
};

std::vector<Candidate> CandidatesOf(const Options& options) {
  std::vector<Candidate> candidates;
  for (const std::string& text : options.candidates) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    candidates.push_back({.name = parts.first, .override = parts.second});
  }
  if (candidates.empty()) candidates.emplace_back();
  return candidates;
}

// `candidate`: null for BF16.
absl::StatusOr<engine::RunSpec> ReadSpec(const Options& options, const Candidate* candidate,
                                         uint64_t seed) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(options.job_file, int64_t{1} << 20));
  std::vector<std::string> overrides = options.overrides;
  overrides.push_back(
      absl::StrCat("stages[0].recipe.name=", candidate == nullptr ? "bf16" : "fp8"));
  overrides.push_back(absl::StrCat("stages[0].seed=", seed));
  overrides.push_back("stages[0].divergence.probe_every_steps=0");
  if (candidate != nullptr && !candidate->override.empty()) {
    overrides.push_back("stages[0]." + candidate->override);
  }
  ParsedSpec parsed = ParseJobSpec(text, overrides);
  if (!parsed.violations.empty()) {
    return absl::InvalidArgumentError(JoinViolations(parsed.violations));
  }
  FillDefaults(&parsed.spec);
  return trainer::MakeRunSpec(parsed.spec);
}

absl::StatusOr<Result> Learn(const Options& options, const Candidate* candidate, uint64_t seed) {
  ASSIGN_OR_RETURN(const engine::RunSpec spec, ReadSpec(options, candidate, seed));
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                   kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = options.threads}));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> engine,
                   engine::Engine::Prepare(spec, "", backend.get()));
  std::ofstream curves;
  if (!options.curves.empty()) curves.open(options.curves, std::ios::app);
  const std::string recipe = candidate == nullptr ? "bf16" : candidate->name;
  Result result;
  std::deque<double> losses;
  double sum = 0;
  while (!engine->done() && (options.max_steps == 0 || result.steps < options.max_steps)) {
    ASSIGN_OR_RETURN(const engine::StepReport step, engine->Step());
    result.steps = step.step;
    result.seconds += step.seconds;
    if (curves) curves << recipe << " " << seed << " " << step.step << " " << step.loss << "\n";
    losses.push_back(step.loss);
    sum += step.loss;
    if (static_cast<int64_t>(losses.size()) <= options.window) continue;
    sum -= losses.front();
    losses.pop_front();
    result.mean_loss = sum / static_cast<double>(options.window);
    result.reached = result.mean_loss < options.target;
    if (result.reached) break;
  }
  if (options.finish) {
    ASSIGN_OR_RETURN(result.report, engine->Finish());
  }
  return result;
}

void PrintRun(const Options& options, const std::string& name, const Result& result,
              const Result* bf16) {
  if (options.target > 0) {
    const char* const unit = result.reached ? "steps" : "steps, without reaching the target";
    std::optional<Baseline> baseline;
    if (bf16 != nullptr) baseline = Baseline{"bf16", static_cast<double>(bf16->steps)};
    Print({absl::StrCat(name, "/steps"), static_cast<double>(result.steps), unit, baseline});
  }
  Print({absl::StrCat(name, "/mean_loss"), result.mean_loss, "nats"});
  Print({absl::StrCat(name, "/seconds"), result.seconds, "s"});
  if (const auto& match = result.report.exact_match; match.has_value()) {
    Print({absl::StrCat(name, "/exact_match"), static_cast<double>(match->correct), "answers",
           Baseline{"questions", static_cast<double>(match->total)}});
  }
  if (const auto& holdout = result.report.holdout; holdout.has_value()) {
    std::optional<Baseline> baseline;
    if (bf16 != nullptr && bf16->report.holdout.has_value()) {
      baseline = Baseline{"bf16", bf16->report.holdout->loss_bf16};
    }
    Print({absl::StrCat(name, "/exported_holdout_loss"), holdout->loss_bf16, "nats", baseline});
  }
}

// 97.5 % quantile of Student's distribution with `freedom` degrees, from the expansion of Cornish
// and Fisher around the normal's; within 0.5 % from 4 degrees on, 9 % low at 2.
double StudentQuantile(double freedom) {
  constexpr double z = 1.959964;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

void PrintRatio(const std::string& name, const std::vector<double>& logarithms) {
  const double count = static_cast<double>(logarithms.size());
  double mean = 0, squares = 0;
  for (const double value : logarithms) mean += value / count;
  for (const double value : logarithms) squares += (value - mean) * (value - mean);
  Figure figure = {absl::StrCat(name, "/steps_ratio"), std::exp(mean), "candidate / bf16"};
  if (count >= 3) {
    const double half =
        StudentQuantile(count - 1) * std::sqrt(squares / (count - 1)) / std::sqrt(count);
    figure.interval = Interval{std::exp(mean - half), std::exp(mean + half)};
  }
  Print(figure);
}

absl::Status Measure(const Options& options) {
  const std::string name = "steps-to-target";
  const std::vector<Candidate> candidates = CandidatesOf(options);
  std::vector<std::vector<double>> logarithms(candidates.size());
  int64_t beyond = 0;
  for (const uint64_t seed : options.seeds) {
    const std::string of_seed = absl::StrCat(name, "/seed-", seed, "/");
    ASSIGN_OR_RETURN(const Result bf16, Learn(options, nullptr, seed));
    PrintRun(options, of_seed + "bf16", bf16, nullptr);
    for (size_t i = 0; i < candidates.size(); ++i) {
      ASSIGN_OR_RETURN(const Result result, Learn(options, &candidates[i], seed));
      PrintRun(options, of_seed + candidates[i].name, result, &bf16);
      beyond += bf16.reached && result.reached ? 0 : 1;
      logarithms[i].push_back(std::log(static_cast<double>(result.steps) / bf16.steps));
    }
  }
  if (options.target == 0) return absl::OkStatus();
  // Runs that end before the target count with the steps that they made, so that a ratio is a
  // bound.
  for (size_t i = 0; i < candidates.size(); ++i) {
    PrintRatio(absl::StrCat(name, "/", candidates[i].name), logarithms[i]);
  }
  Print({name + "/pairs_beyond_the_last_step", static_cast<double>(beyond), "pairs"});
  return absl::OkStatus();
}

int Main(int argc, const char* const* argv) {
  SetCommand(argc, argv);
  Options options;
  CLI::App app("Steps that a job needs to learn its task, FP8 against BF16.", "learning_bench");
  app.add_option("job", options.job_file, "Job file of one stage")->required();
  app.add_option("--set", options.overrides, "path=value, of all jobs");
  app.add_option("--candidate", options.candidates,
                 "NAME=path=value: fp8 with one setting of its stage changed; may be repeated");
  app.add_option("--seeds", options.seeds, "One pair of runs each");
  app.add_option("--target", options.target, "Mean loss to reach; 0: train to the end");
  app.add_option("--window", options.window, "Steps of the mean")->check(CLI::Range(1, 10000));
  app.add_option("--max-steps", options.max_steps, "Give up after; 0: the job's own steps");
  app.add_option("--threads", options.threads, "0: one per core");
  app.add_flag("--finish", options.finish, "Also held-out loss and exact match at the end");
  app.add_option("--curves", options.curves, "File that gets lines: recipe seed step loss");
  int exit_code = 0;
  if (!ParseCommandLine(&app, argc, argv, &exit_code)) return exit_code;
  const absl::Status status = Measure(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "learning_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) { return octavo::bench::Main(argc, argv); }
