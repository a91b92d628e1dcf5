// The engine's one implementation: a run on one backend.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "worker/engine/checkpoint/training_state.h"
#include "worker/engine/data/corpus.h"
#include "worker/engine/data/tokenizer.h"
#include "worker/engine/engine.h"
#include "worker/engine/evaluate/exact_match.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/transformer.h"
#include "worker/engine/optimizer/optimizer.h"
#include "worker/engine/parameters.h"

namespace octavo::engine {

// What Prepare has put together; see there.
struct RunParts {
  RunSpec spec;
  ModelFiles model_files;
  ModelConfig config;
  kernels::Backend* backend = nullptr;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Corpus> corpus;
  std::optional<ExactMatchSet> exact_match;
  std::optional<Parameters> parameters;  // always there; optional because it has no default
  std::unique_ptr<Transformer> transformer;
  std::optional<Optimizer> optimizer;  // the same
  RunState state;
  std::vector<std::string> warnings;
};

// The step whose policy the weights' copies are made for: the next, or after the last one the last.
inline int64_t NextStep(const RunSpec& spec, const RunState& state) {
  return std::min(state.step + 1, spec.steps);
}

// Held-out losses of the weights as they are.
absl::StatusOr<std::optional<HoldoutReport>> MeasureHoldout(const RunParts& parts);

class Run final : public Engine {
 public:
  explicit Run(RunParts parts) : parts_(std::move(parts)) {}

  int64_t completed_steps() const override { return parts_.state.step; }
  bool done() const override { return parts_.state.step >= parts_.spec.steps; }
  absl::StatusOr<StepReport> Step() override;
  absl::StatusOr<std::string> SaveCheckpoint(const std::string& folder) override;
  absl::StatusOr<FinalReport> Finish() override;
  absl::Status Export(const std::string& folder) override;

 private:
  // The step's micro-batches, in order.
  std::vector<Batch> TakeBatches() const;
  absl::StatusOr<std::optional<double>> ProbeBf16(const Batch& batch);
  // Everything that the backend does for a step with target tokens.
  absl::Status Enqueue(const std::vector<Batch>& batches, const StepReport& report);
  // What came of it: waits, and is the only read of a step.
  absl::Status Read(StepReport* report);
  absl::Status CountStep(const StepReport& report);
  absl::StatusOr<std::string> DescribeNonfinite(const StepReport& report) const;

  RunParts parts_;
  SystemClock clock_;
  kernels::GemmCounts training_gemms_;
  NonfiniteCounts nonfinite_;  // FinalReport::nonfinite
};

}  // namespace octavo::engine
