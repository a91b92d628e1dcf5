// What a training step, or an evaluation, leaves in the backend's memory about itself: its state
// and the counters of values that are not finite. One read fetches both.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/nonfinite.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {

struct StepReading {
  kernels::StepState state;
  NonfiniteCounts nonfinite;
};

class StepRecord {
 public:
  static absl::StatusOr<StepRecord> Create(const ParameterLayout& layout,
                                           kernels::Backend* backend);

  // In the backend's memory.
  kernels::StepState* state() const {
    return reinterpret_cast<kernels::StepState*>(memory_.data());
  }
  const NonfiniteCounters& nonfinite() const { return nonfinite_; }

  // Of a run that goes on; a new record has 0.
  absl::Status SetAppliedUpdates(int64_t updates);
  // Clears what the step before has added up, but for the counters of weights. That step must have
  // been read.
  absl::Status Begin(double learning_rate);
  // Whether no micro-batch has been added since Begin; the next answer is no.
  bool TakeFirst() { return std::exchange(first_, false); }
  // Waits for the step.
  absl::StatusOr<StepReading> Read() const;

 private:
  kernels::Backend* backend_ = nullptr;
  kernels::Buffer<std::byte> memory_;  // a StepState, then the counters
  NonfiniteCounters nonfinite_;
  bool first_ = true;
  kernels::HostBuffer<StepInput> input_;  // [1], the source of copies; Read has waited for them
};

}  // namespace octavo::engine
