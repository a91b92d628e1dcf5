// A checkpoint: everything that the next step depends on. Its bytes are laid down in DESIGN.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/checkpoint/model_files.h"
#include "worker/engine/engine.h"
#include "worker/engine/fingerprint.h"
#include "worker/engine/parameters.h"

namespace octavo::engine {

struct RunState {
  int64_t step = 0;  // completed, skipped ones included
  int64_t applied_updates = 0;
  int64_t samples = 0;  // training rows consumed: where the next step's data starts
  int64_t total_tokens = 0;
  int64_t nonfinite_steps = 0;
  int64_t consecutive_nonfinite_steps = 0;
  int64_t empty_steps = 0;  // that had no target token
  std::optional<HoldoutReport> initial_holdout;
  Fingerprint fingerprint;
};

// Of a checkpoint's state.json, which alone is checked against the manifest.
absl::StatusOr<RunState> ReadRunState(const std::string& folder);

// What a checkpoint holds. Pointers outlive the call.
struct CheckpointContent {
  const RunState* state = nullptr;
  const ModelFiles* model = nullptr;
  const Parameters* parameters = nullptr;
};

// Returns the SHA-256 of manifest.json. OUT_OF_RANGE: a weight or moment is not finite; names it.
absl::StatusOr<std::string> SaveCheckpoint(const std::string& folder,
                                           const CheckpointContent& content,
                                           kernels::Backend* backend);

class CheckpointReader {
 public:
  // Checks every file against the manifest, and its hash. DATA_LOSS names what is missing, cut off
  // or changed.
  static absl::StatusOr<CheckpointReader> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const RunState& state() const { return state_; }
  // A model folder without weights: what the run's own held when it began.
  std::string model_folder() const { return folder_ + "/model"; }
  // Master weights and moments, bit for bit.
  absl::Status Load(const Parameters& parameters, kernels::Backend* backend) const;

 private:
  std::string folder_;
  RunState state_;
};

}  // namespace octavo::engine
