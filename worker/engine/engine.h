// A run of one stage. Prepare, then Step until done() with SaveCheckpoint in between, then Finish.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/nonfinite.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

struct Probe {
  double loss_fp8;
  double loss_bf16;
};

struct StepReport {
  int64_t step = 0;          // counts from 1
  double loss = 0;           // mean over the step's target tokens
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t step_tokens = 0;
  int64_t total_tokens = 0;  // over the whole run
  double seconds = 0;        // without probe
  // False: the loss, the gradient or a value counted in `nonfinite` was not finite. Nothing changed
  // but the step and the data position.
  bool applied = true;
  int64_t nonfinite_steps = 0;  // so far
  NonfiniteCounts nonfinite;    // met in this step
  int64_t peak_memory_bytes = 0;
  std::optional<Probe> probe;
};

struct HoldoutReport {
  int64_t tokens = 0;
  std::string tokens_sha256;
  double loss_bf16 = 0;
  std::optional<double> loss_fp8;
};

struct ExactMatchReport {
  int64_t correct = 0;
  int64_t total = 0;
};

struct FinalReport {
  std::optional<HoldoutReport> initial_holdout;
  std::optional<HoldoutReport> holdout;
  std::optional<ExactMatchReport> exact_match;
  // Of this process's steps; probes and evaluations are not counted.
  kernels::GemmCounts training_gemms;
  NonfiniteCounts nonfinite;  // of the same steps; `first` is that of the last that met any
  int64_t parameters = 0;
  std::string weights_sha256;
  std::vector<std::string> warnings;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Reads model and data and allocates everything. `resume_folder` (may be empty) is a checkpoint;
  // it must agree with the spec in everything that shapes the run, else FAILED_PRECONDITION names
  // what changed. Without one the run starts from spec.extend_checkpoint, if any, and may differ
  // from that in what Continuation allows. Going on from a checkpoint needs no model folder: where
  // that is gone, the checkpoint's own copy is read. INVALID_ARGUMENT: bad model or data.
  // RESOURCE_EXHAUSTED: the memory estimate exceeds the backend's memory.
  static absl::StatusOr<std::unique_ptr<Engine>> Prepare(const RunSpec& spec,
                                                         const std::string& resume_folder,
                                                         kernels::Backend* backend);

  virtual int64_t completed_steps() const = 0;
  virtual bool done() const = 0;

  // One optimizer step. OUT_OF_RANGE after the limit of consecutive non-finite steps (10).
  virtual absl::StatusOr<StepReport> Step() = 0;

  // Writes everything that the next Step depends on. `folder` must not exist; it appears complete,
  // fsynced and checksummed, or not at all. Returns the SHA-256 of its manifest.json. Weights that
  // are not finite are refused.
  virtual absl::StatusOr<std::string> SaveCheckpoint(const std::string& folder) = 0;

  // Held-out losses in both precisions and exact match.
  virtual absl::StatusOr<FinalReport> Finish() = 0;

  // A Hugging Face folder of the master weights in BF16. Same rule for `folder`.
  virtual absl::Status Export(const std::string& folder) = 0;
};

// Everything that Prepare would refuse, all at once, without allocating the model.
struct InspectionProblem {
  std::string field;  // path in the stage, e.g. "data.files[0]"
  std::string message;
};
struct Inspection {
  std::vector<InspectionProblem> problems;
  std::vector<std::string> warnings;
  int64_t parameters = 0;
  MemoryEstimate memory;
  int64_t train_tokens = 0;
  int64_t tokens_per_step = 0;
  double epochs = 0;
  int64_t checkpoint_bytes = 0;
};
Inspection Inspect(const RunSpec& spec, const Place& place);

}  // namespace octavo::engine
