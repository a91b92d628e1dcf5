#include "worker/engine/model/device_batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/model/rope.h"

namespace octavo::engine {
namespace {

using kernels::Buffer;

absl::Status CopyToBackend(const std::vector<int32_t>& values, const Buffer<int32_t>& buffer,
                           kernels::Backend* backend) {
  return backend->CopyIn(buffer.data(), values.data(),
                         static_cast<int64_t>(values.size() * sizeof(int32_t)));
}

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
  for (Buffer<int32_t>* buffer :
       {&batch.ids_, &batch.targets_, &batch.positions_, &batch.attend_from_}) {
    ASSIGN_OR_RETURN(*buffer, Buffer<int32_t>::Create(backend, max_tokens));
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

absl::Status DeviceBatch::Upload(const Batch& batch, kernels::Backend* backend) {
  RETURN_IF_ERROR(Check(batch));
  tokens_ = batch.tokens();
  RETURN_IF_ERROR(CopyToBackend(batch.ids, ids_, backend));
  RETURN_IF_ERROR(CopyToBackend(batch.targets, targets_, backend));
  RETURN_IF_ERROR(CopyToBackend(batch.positions, positions_, backend));
  std::vector<int32_t> attend_from = batch.attend_from;
  if (sliding_window_ > 0) {
    for (int64_t i = 0; i < tokens_; ++i) {
      attend_from[i] =
          static_cast<int32_t>(std::max<int64_t>(attend_from[i], i - sliding_window_ + 1));
    }
  }
  return CopyToBackend(attend_from, attend_from_, backend);
}

void DeviceBatch::Describe(Pass* pass) const {
  pass->tokens = tokens_;
  pass->ids = ids_.data();
  pass->targets = targets_.data();
  pass->positions = positions_.data();
  pass->attend_from = attend_from_.data();
  pass->cosine = cosine_.data();
  pass->sine = sine_.data();
}

}  // namespace octavo::engine
