// Memory for quantised matrices of one kind whose size may change from pass to pass.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/backend.h"

namespace octavo::engine {

class QuantizedBuffer {
 public:
  // Empty: its tensors have no data, which operations take as "not wanted".
  QuantizedBuffer() = default;

  static absl::StatusOr<QuantizedBuffer> Create(const kernels::QuantizedSpec& largest,
                                                kernels::Backend* backend) {
    QuantizedBuffer buffer;
    buffer.backend_ = backend;
    buffer.largest_ = largest;
    ASSIGN_OR_RETURN(buffer.memory_,
                     kernels::Buffer<uint8_t>::Create(backend, backend->QuantizedBytes(largest)));
    return buffer;
  }

  bool empty() const { return memory_.count() == 0; }

  // Of the largest size.
  kernels::QuantizedTensor Tensor() const { return {.spec = largest_, .data = memory_.data()}; }
  // Of another size within the capacity.
  kernels::QuantizedTensor Tensor(int64_t rows, int64_t columns) const {
    kernels::QuantizedTensor tensor = Tensor();
    tensor.spec.rows = rows;
    tensor.spec.columns = columns;
    CHECK(empty() || backend_->QuantizedBytes(tensor.spec) <= memory_.bytes());
    return tensor;
  }

 private:
  kernels::Backend* backend_ = nullptr;  // outlives the buffer
  kernels::QuantizedSpec largest_ = {
      .rows = 0, .columns = 0, .tile = kernels::Tile::k1x128, .role = kernels::Role::kA};
  kernels::Buffer<uint8_t> memory_;
};

}  // namespace octavo::engine
