// RMSNorm with its weight: y = x * rsqrt(mean(x^2) + epsilon) * weight over rows of `columns`.
// Gives operations, for the caller to run as they are or fused with what follows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/model/weight.h"
#include "worker/engine/model/workspace.h"

namespace octavo::engine {

class Norm {
 public:
  static absl::StatusOr<Norm> Create(const std::string& module, const ParameterIndex& parameters,
                                     double epsilon, kernels::Backend* backend);
  absl::Status UpdateWeights(const float* master, const NonfiniteCounters& nonfinite,
                             kernels::Backend* backend) {
    return weight_.Update(master, nonfinite, backend);
  }

  struct ForwardArguments {
    const kernels::bfloat16* x;
    kernels::bfloat16* y;
    float* inverse_rms;  // [rows]; null: rows are not watched for overflow
    int64_t rows;
  };
  kernels::RmsNormForward Forward(const Pass& pass, const ForwardArguments& arguments) const;

  struct BackwardArguments {
    const kernels::bfloat16* dy;
    const kernels::bfloat16* x;
    const float* inverse_rms;
    const kernels::bfloat16* dx_add;  // null or a further part of dx; may be dx
    kernels::bfloat16* dx;
    int64_t rows;
  };
  kernels::RmsNormBackward Backward(const Pass& pass, const BackwardArguments& arguments) const;

 private:
  int64_t columns_ = 0;
  int64_t module_ = 0;
  float epsilon_ = 0;
  Bfloat16Weight weight_;
};

}  // namespace octavo::engine
