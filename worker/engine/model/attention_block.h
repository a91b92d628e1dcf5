// y = x + o(attention(rope(q), rope(k), v)),  q, k, v = linears of h = norm(x); with qk_norm q and
// k are normalised per head first.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/linear.h"
#include "worker/engine/model/norm.h"

namespace octavo::engine {

// What backward reads, beside x. N tokens, Q and K columns of queries and keys. An evaluation
// overwrites it layer by layer.
struct AttentionActivations {
  kernels::Buffer<float> inverse_rms;    // [N]
  KeptInput input;                       // h
  kernels::Buffer<kernels::bfloat16> q;  // [N, Q] as attention reads it
  kernels::Buffer<kernels::bfloat16> k;  // [N, K]
  kernels::Buffer<kernels::bfloat16> v;  // [N, K]
  // [N, Q]; FP8 codes of its transpose are made in backward.
  kernels::Buffer<kernels::bfloat16> result;
  kernels::Buffer<float> log_sum_exp;  // [heads, N]

  // With qk_norm: what enters the norms.
  kernels::Buffer<kernels::bfloat16> q_raw;  // [N, Q]
  kernels::Buffer<kernels::bfloat16> k_raw;  // [N, K]
  kernels::Buffer<float> q_inverse_rms;      // [N, heads]
  kernels::Buffer<float> k_inverse_rms;      // [N, kv_heads]
};

class AttentionBlock {
 public:
  // `layer` is e.g. "model.layers.3".
  static absl::StatusOr<AttentionBlock> Create(const std::string& layer, const ModelConfig& config,
                                               const ParameterIndex& parameters,
                                               const PrecisionPolicy& policy, bool for_training,
                                               kernels::Backend* backend);
  absl::StatusOr<AttentionActivations> CreateActivations(int64_t max_tokens,
                                                         kernels::Backend* backend) const;
  absl::Status UpdateWeights(const float* master, const PolicyTable& policy,
                             const NonfiniteCounters& nonfinite, kernels::Backend* backend);

  // `y` may be x.
  absl::Status Forward(const Pass& pass, const kernels::bfloat16* x, kernels::bfloat16* y,
                       AttentionActivations* activations) const;
  // `dx` holds d(loss)/dy and becomes d(loss)/dx.
  absl::Status Backward(const Pass& pass, const kernels::bfloat16* x,
                        AttentionActivations* activations, kernels::bfloat16* dx) const;

 private:
  absl::Status Project(const Pass& pass, const kernels::bfloat16* x,
                       AttentionActivations* activations) const;
  absl::Status Attend(const Pass& pass, AttentionActivations* activations) const;
  // From the results of q_proj and k_proj to what attention reads.
  absl::Status Position(const Pass& pass, AttentionActivations* activations) const;
  absl::Status BackwardAttend(const Pass& pass, const AttentionActivations& activations) const;
  // The reverse of Position. With qk_norm, attention having read q and k for the last time, their
  // buffers take d(q_raw) and d(k_raw).
  absl::Status BackwardPosition(const Pass& pass, AttentionActivations* activations) const;
  kernels::Rope Rotation(const Pass& pass, kernels::bfloat16* x, int64_t heads) const;

  ModelShape shape_;
  Norm norm_;
  LinearGroup qkv_;
  LinearGroup o_;
  std::optional<Norm> q_norm_;
  std::optional<Norm> k_norm_;
};

}  // namespace octavo::engine
