// y = x + down(silu(gate(h)) * up(h)),  h = norm(x)
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/linear.h"
#include "worker/engine/model/norm.h"

namespace octavo::engine {

// What backward reads, beside x. N tokens, I intermediate. An evaluation overwrites it layer by
// layer.
struct MlpActivations {
  kernels::Buffer<float> inverse_rms;       // [N]
  KeptInput input;                          // h
  kernels::Buffer<kernels::bfloat16> gate;  // [N, I]; backward writes its gradient over it
  kernels::Buffer<kernels::bfloat16> up;    // [N, I]; the same
  KeptInput activated;                      // silu(gate) * up
};

class MlpBlock {
 public:
  // `layer` is e.g. "model.layers.3".
  static absl::StatusOr<MlpBlock> Create(const std::string& layer, const ModelConfig& config,
                                         const ParameterIndex& parameters,
                                         const PrecisionPolicy& policy, bool for_training,
                                         kernels::Backend* backend);
  absl::StatusOr<MlpActivations> CreateActivations(int64_t max_tokens,
                                                   kernels::Backend* backend) const;
  absl::Status UpdateWeights(const float* master, const PolicyTable& policy,
                             const NonfiniteCounters& nonfinite, kernels::Backend* backend);

  // `y` may be x.
  absl::Status Forward(const Pass& pass, const kernels::bfloat16* x, kernels::bfloat16* y,
                       MlpActivations* activations) const;
  // `dx` holds d(loss)/dy and becomes d(loss)/dx.
  absl::Status Backward(const Pass& pass, const kernels::bfloat16* x, MlpActivations* activations,
                        kernels::bfloat16* dx) const;

 private:
  ModelShape shape_;
  Norm norm_;
  LinearGroup gate_up_;
  LinearGroup down_;
};

}  // namespace octavo::engine
