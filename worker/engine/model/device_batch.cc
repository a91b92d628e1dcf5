#include "worker/engine/model/device_batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/model/rope.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {
namespace {

using kernels::Buffer;
using kernels::Queue;

constexpr int64_t kArrays = 4;  // of a slot

absl::Status CheckRange(const char* what, int64_t token, int32_t value, int64_t low, int64_t high) {
  if (value >= low && value < high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " ", value, " of token ", token, " of the batch is outside [", low, ", ", high, ")"));
}

}  // namespace

absl::StatusOr<DeviceBatch> DeviceBatch::Create(const ModelConfig& config, int64_t max_tokens,
                                                kernels::Backend* backend) {
  DeviceBatch batch;
  batch.max_tokens_ = max_tokens;
  batch.vocabulary_ = config.shape.vocabulary;
  batch.sliding_window_ = config.sliding_window;
  batch.pitch_ = BatchPitch(max_tokens);
  for (Slot& slot : batch.slots_) {
    ASSIGN_OR_RETURN(slot.staged,
                     kernels::HostBuffer<int32_t>::Create(backend, kArrays * batch.pitch_));
    ASSIGN_OR_RETURN(slot.values, Buffer<int32_t>::Create(backend, kArrays * batch.pitch_));
    ASSIGN_OR_RETURN(slot.copied, backend->CreateEvent());
    ASSIGN_OR_RETURN(slot.read, backend->CreateEvent());
  }
  // No row is longer than max_tokens, so no position reaches it.
  const RopeTable table = MakeRopeTable(config.rope, config.shape.head_dim, max_tokens);
  const int64_t count = static_cast<int64_t>(table.cosine.size());
  ASSIGN_OR_RETURN(batch.cosine_, Buffer<float>::Create(backend, count));
  ASSIGN_OR_RETURN(batch.sine_, Buffer<float>::Create(backend, count));
  RETURN_IF_ERROR(
      backend->CopyIn(batch.cosine_.data(), table.cosine.data(), batch.cosine_.bytes()));
  RETURN_IF_ERROR(backend->CopyIn(batch.sine_.data(), table.sine.data(), batch.sine_.bytes()));
  return batch;
}

absl::Status DeviceBatch::Check(const Batch& batch) const {
  const int64_t tokens = batch.tokens();
  if (tokens < 1 || tokens > max_tokens_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", tokens, " tokens; the model was made for 1 to ", max_tokens_));
  }
  for (const std::vector<int32_t>* values :
       {&batch.ids, &batch.targets, &batch.positions, &batch.attend_from}) {
    CHECK(static_cast<int64_t>(values->size()) == tokens);
  }
  for (int64_t i = 0; i < tokens; ++i) {
    RETURN_IF_ERROR(CheckRange("id", i, batch.ids[i], 0, vocabulary_));
    if (batch.targets[i] != kMasked) {
      RETURN_IF_ERROR(CheckRange("target", i, batch.targets[i], 0, vocabulary_));
    }
    RETURN_IF_ERROR(CheckRange("position", i, batch.positions[i], 0, max_tokens_));
    const int32_t previous = i == 0 ? 0 : batch.attend_from[i - 1];
    RETURN_IF_ERROR(CheckRange("attend_from", i, batch.attend_from[i], previous, i + 1));
  }
  return absl::OkStatus();
}

void DeviceBatch::Stage(const Batch& batch, int32_t* staged) const {
  int32_t* to = staged;
  for (const std::vector<int32_t>* values :
       {&batch.ids, &batch.targets, &batch.positions, &batch.attend_from}) {
    std::copy(values->begin(), values->end(), to);
    to += pitch_;
  }
  if (sliding_window_ == 0) return;
  int32_t* const attend_from = staged + 3 * pitch_;
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    attend_from[i] =
        static_cast<int32_t>(std::max<int64_t>(attend_from[i], i - sliding_window_ + 1));
  }
}

absl::Status DeviceBatch::Upload(const Batch& batch, kernels::Backend* backend) {
  RETURN_IF_ERROR(Check(batch));
  // What has been enqueued so far is all that reads the present slot.
  RETURN_IF_ERROR(backend->Record(Queue::kCompute, slots_[current_].read.get()));
  current_ = 1 - current_;
  tokens_ = batch.tokens();
  const Slot& slot = slots_[current_];
  RETURN_IF_ERROR(backend->WaitOnHost(*slot.copied));
  Stage(batch, slot.staged.data());
  RETURN_IF_ERROR(backend->Wait(Queue::kCopy, *slot.read));
  RETURN_IF_ERROR(backend->EnqueueCopyIn(Queue::kCopy, slot.values.data(), slot.staged.data(),
                                         slot.values.bytes()));
  RETURN_IF_ERROR(backend->Record(Queue::kCopy, slot.copied.get()));
  return backend->Wait(Queue::kCompute, *slot.copied);
}

void DeviceBatch::Describe(Pass* pass) const {
  const int32_t* const values = slots_[current_].values.data();
  pass->tokens = tokens_;
  pass->ids = values;
  pass->targets = values + pitch_;
  pass->positions = values + 2 * pitch_;
  pass->attend_from = values + 3 * pitch_;
  pass->cosine = cosine_.data();
  pass->sine = sine_.data();
}

}  // namespace octavo::engine
