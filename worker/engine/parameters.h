// Master weights, gradients and AdamW moments: four flat FP32 arrays over one layout. Flat, so that
// a later sharded optimizer can cut them anywhere.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/shape.h"

namespace octavo::engine {

class Parameters {
 public:
  // Gradients and moments start at zero, master weights undefined.
  static absl::StatusOr<Parameters> Create(const ParameterLayout& layout,
                                           kernels::Backend* backend);

  const ParameterLayout& layout() const { return layout_; }
  // Each [layout().elements], in the backend's memory.
  float* master() const { return master_.data(); }
  float* gradient() const { return gradient_.data(); }
  float* exp_avg() const { return exp_avg_.data(); }
  float* exp_avg_sq() const { return exp_avg_sq_.data(); }

 private:
  explicit Parameters(ParameterLayout layout) : layout_(std::move(layout)) {}
  ParameterLayout layout_;
  kernels::Buffer<float> master_;
  kernels::Buffer<float> gradient_;
  kernels::Buffer<float> exp_avg_;
  kernels::Buffer<float> exp_avg_sq_;
};

}  // namespace octavo::engine
