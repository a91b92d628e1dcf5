// A batch in the backend's memory, with the rotary tables that its positions index.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

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
  // attend_from. The copy runs beside the operations on the batch before; operations that are
  // enqueued from here on run after it.
  absl::Status Upload(const Batch& batch, kernels::Backend* backend);

  // Sets tokens, ids and the following pointers, cosine and sine.
  void Describe(Pass* pass) const;

 private:
  // Two take turns, so that one can be filled while operations still read the other.
  struct Slot {
    kernels::HostBuffer<int32_t> staged;     // [4, pitch], the source of the copy
    kernels::Buffer<int32_t> values;         // [4, pitch]: ids, targets, positions, attend_from
    std::unique_ptr<kernels::Event> copied;  // `staged` may be written again
    std::unique_ptr<kernels::Event> read;    // `values` may
  };

  absl::Status Check(const Batch& batch) const;
  void Stage(const Batch& batch, int32_t* staged) const;

  int64_t max_tokens_ = 0;
  int64_t tokens_ = 0;
  int64_t vocabulary_ = 0;
  int64_t sliding_window_ = 0;
  int64_t pitch_ = 0;  // elements of one array in a slot
  std::array<Slot, 2> slots_;
  size_t current_ = 0;             // the slot of the batch that was uploaded last
  kernels::Buffer<float> cosine_;  // [max_tokens, head_dim / 2]
  kernels::Buffer<float> sine_;
};

}  // namespace octavo::engine
