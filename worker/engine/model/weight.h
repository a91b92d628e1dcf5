// Copies of master weights that passes read, remade by Update after every optimizer step.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/nonfinite.h"
#include "worker/engine/model/quantized_buffer.h"
#include "worker/engine/model/shape.h"
#include "worker/engine/precision/linear_policy.h"

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

// The weight W [rows, columns] of a linear layer in the forms that its policy needs at some step:
// in BF16; in FP8 in 128x128 blocks; W^T in FP8, the same codes transposed. Update remakes those
// that the step at hand reads. An evaluation may ask for others, which are made in scratch memory.
class LinearWeight {
 public:
  static absl::StatusOr<LinearWeight> Create(const ParameterSpec& parameter,
                                             const LinearForms& forms, kernels::Backend* backend);
  absl::Status Update(const float* master, const LinearPolicy& policy,
                      const NonfiniteCounters& nonfinite, kernels::Backend* backend);

  int64_t module() const { return module_; }
  int64_t offset() const { return offset_; }  // in the flat arrays
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // The copy that Update made, else one of the master weights in `scratch`.
  absl::StatusOr<const kernels::bfloat16*> Bfloat16(const float* master, kernels::bfloat16* scratch,
                                                    kernels::Backend* backend) const;
  // The same in FP8.
  absl::StatusOr<kernels::QuantizedTensor> Quantized(const float* master,
                                                     const QuantizedBuffer& scratch,
                                                     kernels::Backend* backend) const;
  // Only of a step whose DGrad is FP8.
  kernels::QuantizedTensor QuantizedTransposed() const;

 private:
  int64_t module_ = 0;
  int64_t offset_ = 0;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  kernels::Buffer<kernels::bfloat16> bf16_;
  QuantizedBuffer fp8_;
  QuantizedBuffer fp8_transposed_;
  LinearForms fresh_;  // those that the last Update made
};

}  // namespace octavo::engine
