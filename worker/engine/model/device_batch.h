// A batch in the backend's memory, with the rotary tables that its positions index.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/batch.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/workspace.h"

namespace octavo::engine {

class DeviceBatch {
 public:
  static absl::StatusOr<DeviceBatch> Create(const ModelConfig& config, int64_t max_tokens,
                                            kernels::Backend* backend);

  // INVALID_ARGUMENT: more tokens than max_tokens, arrays of other lengths, or values out of range,
  // which kernels would follow outside their arrays. A sliding window of the model narrows
  // attend_from.
  absl::Status Upload(const Batch& batch, kernels::Backend* backend);

  // Sets tokens, ids and the following pointers, cosine and sine.
  void Describe(Pass* pass) const;

 private:
  absl::Status Check(const Batch& batch) const;

  int64_t max_tokens_ = 0;
  int64_t tokens_ = 0;
  int64_t vocabulary_ = 0;
  int64_t sliding_window_ = 0;
  kernels::Buffer<int32_t> ids_;  // this and the following: [max_tokens]
  kernels::Buffer<int32_t> targets_;
  kernels::Buffer<int32_t> positions_;
  kernels::Buffer<int32_t> attend_from_;
  kernels::Buffer<float> cosine_;  // [max_tokens, head_dim / 2]
  kernels::Buffer<float> sine_;
};

}  // namespace octavo::engine
