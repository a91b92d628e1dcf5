// Copies of master weights that passes read, remade by Update after every optimizer step.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/nonfinite.h"
#include "worker/engine/model/quantized_buffer.h"
#include "worker/engine/model/shape.h"

namespace octavo::engine {

// Parameters by name.
class ParameterIndex {
 public:
  explicit ParameterIndex(const ParameterLayout& layout);
  // A name that the layout lacks is our own fault.
  const ParameterSpec& Get(const std::string& name) const;
  bool Has(const std::string& name) const { return by_name_.count(name) > 0; }

 private:
  std::map<std::string, ParameterSpec> by_name_;
};

class Bfloat16Weight {
 public:
  static absl::StatusOr<Bfloat16Weight> Create(const ParameterSpec& parameter,
                                               kernels::Backend* backend);
  absl::Status Update(const float* master, const NonfiniteCounters& nonfinite,
                      kernels::Backend* backend);

  const kernels::bfloat16* data() const { return values_.data(); }
  int64_t offset() const { return offset_; }

 private:
  int64_t offset_ = 0;
  int64_t module_ = 0;
  kernels::Buffer<kernels::bfloat16> values_;
};

// In 128x128 blocks, [rows, columns] for FProp and, for training, [columns, rows] for DGrad.
class Fp8Weight {
 public:
  static absl::StatusOr<Fp8Weight> Create(const ParameterSpec& parameter, bool for_training,
                                          kernels::Backend* backend);
  absl::Status Update(const float* master, const NonfiniteCounters& nonfinite,
                      kernels::Backend* backend);

  kernels::QuantizedTensor normal() const { return normal_.Tensor(); }
  kernels::QuantizedTensor transposed() const { return transposed_.Tensor(); }

 private:
  int64_t offset_ = 0;
  int64_t module_ = 0;
  QuantizedBuffer normal_;
  QuantizedBuffer transposed_;  // empty without training
};

}  // namespace octavo::engine
