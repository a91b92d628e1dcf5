#include "worker/engine/model/step_record.h"

#include <cstring>
#include <vector>

#include "base/status.h"

namespace octavo::engine {

using kernels::StepState;

constexpr int64_t kStateBytes = sizeof(StepState);
static_assert(sizeof(StepState) % sizeof(uint64_t) == 0);  // the counters behind it are aligned

absl::StatusOr<StepRecord> StepRecord::Create(const ParameterLayout& layout,
                                              kernels::Backend* backend) {
  StepRecord record;
  record.backend_ = backend;
  ASSIGN_OR_RETURN(record.input_, kernels::HostBuffer<StepInput>::Create(backend, 1));
  const int64_t bytes = kStateBytes + NonfiniteCounters::Bytes(layout);
  ASSIGN_OR_RETURN(record.memory_, kernels::Buffer<std::byte>::Create(backend, bytes));
  record.nonfinite_ =
      NonfiniteCounters(layout, reinterpret_cast<uint64_t*>(record.memory_.data() + kStateBytes));
  RETURN_IF_ERROR(backend->Run(kernels::FillZero{.memory = record.memory_.data(), .bytes = bytes}));
  return record;
}

absl::Status StepRecord::SetAppliedUpdates(int64_t updates) {
  StepInput* const input = input_.data();
  input->applied_updates = updates;
  return backend_->EnqueueCopyIn(kernels::Queue::kCompute, &state()->applied_updates,
                                 &input->applied_updates, sizeof(int64_t));
}

absl::Status StepRecord::Begin(double learning_rate) {
  first_ = true;
  StepInput* const input = input_.data();
  input->learning_rate = learning_rate;
  RETURN_IF_ERROR(backend_->EnqueueCopyIn(kernels::Queue::kCompute, &state()->learning_rate,
                                          &input->learning_rate, sizeof(double)));
  constexpr int64_t kKept = offsetof(StepState, loss);
  RETURN_IF_ERROR(backend_->Run(
      kernels::FillZero{.memory = memory_.data() + kKept, .bytes = kStateBytes - kKept}));
  return nonfinite_.ClearPasses(backend_);
}

absl::StatusOr<StepReading> StepRecord::Read() const {
  std::vector<uint64_t> words(static_cast<size_t>(memory_.bytes()) / sizeof(uint64_t));
  RETURN_IF_ERROR(backend_->CopyOut(words.data(), memory_.data(), memory_.bytes()));
  StepReading reading;
  std::memcpy(&reading.state, words.data(), sizeof(StepState));
  reading.nonfinite = nonfinite_.Summarise(words.data() + kStateBytes / sizeof(uint64_t));
  return reading;
}

}  // namespace octavo::engine
