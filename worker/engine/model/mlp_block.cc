#include "worker/engine/model/mlp_block.h"

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Buffer;

absl::StatusOr<MlpBlock> MlpBlock::Create(const std::string& layer, const ModelConfig& config,
                                          const ParameterIndex& parameters,
                                          const PrecisionPolicy& policy, bool for_training,
                                          kernels::Backend* backend) {
  MlpBlock block;
  block.shape_ = config.shape;
  ASSIGN_OR_RETURN(block.norm_, Norm::Create(layer + ".post_attention_layernorm", parameters,
                                             config.rms_norm_epsilon, backend));
  ASSIGN_OR_RETURN(block.gate_up_,
                   LinearGroup::Create({layer + ".mlp.gate_proj", layer + ".mlp.up_proj"},
                                       parameters, policy, for_training, backend));
  ASSIGN_OR_RETURN(block.down_, LinearGroup::Create({layer + ".mlp.down_proj"}, parameters, policy,
                                                    for_training, backend));
  return block;
}

absl::StatusOr<MlpActivations> MlpBlock::CreateActivations(int64_t max_tokens,
                                                           kernels::Backend* backend) const {
  const int64_t size = max_tokens * shape_.intermediate;
  MlpActivations activations;
  ASSIGN_OR_RETURN(activations.inverse_rms, Buffer<float>::Create(backend, max_tokens));
  ASSIGN_OR_RETURN(activations.input, gate_up_.CreateKeptInput(max_tokens, backend));
  ASSIGN_OR_RETURN(activations.gate, Buffer<bfloat16>::Create(backend, size));
  ASSIGN_OR_RETURN(activations.up, Buffer<bfloat16>::Create(backend, size));
  ASSIGN_OR_RETURN(activations.activated, down_.CreateKeptInput(max_tokens, backend));
  return activations;
}

absl::Status MlpBlock::UpdateWeights(const float* master, const PolicyTable& policy,
                                     const NonfiniteCounters& nonfinite,
                                     kernels::Backend* backend) {
  RETURN_IF_ERROR(norm_.UpdateWeights(master, nonfinite, backend));
  RETURN_IF_ERROR(gate_up_.UpdateWeights(master, policy, nonfinite, backend));
  return down_.UpdateWeights(master, policy, nonfinite, backend);
}

absl::Status MlpBlock::Forward(const Pass& pass, const bfloat16* x, bfloat16* y,
                               MlpActivations* activations) const {
  const Workspace& workspace = *pass.workspace;
  bfloat16* const gate = activations->gate.data();
  bfloat16* const up = activations->up.data();
  const kernels::RmsNormForward normalise =
      norm_.Forward(pass, {.x = x,
                           .y = workspace.normalised.data(),
                           .inverse_rms = activations->inverse_rms.data(),
                           .rows = pass.tokens});
  RETURN_IF_ERROR(gate_up_.Forward(pass, normalise, activations->input, {{gate}, {up}}));
  const kernels::SwigluForward activate = {.gate = gate,
                                           .up = up,
                                           .y = workspace.activated.data(),
                                           .rows = pass.tokens,
                                           .columns = shape_.intermediate};
  return down_.Forward(pass, activate, activations->activated, {{.y = y, .residual = x}});
}

absl::Status MlpBlock::Backward(const Pass& pass, const bfloat16* x, MlpActivations* activations,
                                bfloat16* dx) const {
  const Workspace& workspace = *pass.workspace;
  bfloat16* const gate = activations->gate.data();
  bfloat16* const up = activations->up.data();
  bfloat16* const dactivated = workspace.activated.data();
  RETURN_IF_ERROR(down_.Backward(pass, {dx}, activations->activated, dactivated));
  const kernels::SwigluBackward activate = {.dy = dactivated,
                                            .gate = gate,
                                            .up = up,
                                            .dgate = gate,
                                            .dup = up,
                                            .rows = pass.tokens,
                                            .columns = shape_.intermediate};
  bfloat16* const dnormalised = workspace.normalised.data();
  RETURN_IF_ERROR(gate_up_.Backward(pass, activate, activations->input, dnormalised));
  return pass.backend->Run(norm_.Backward(pass, {.dy = dnormalised,
                                                 .x = x,
                                                 .inverse_rms = activations->inverse_rms.data(),
                                                 .dx_add = dx,
                                                 .dx = dx,
                                                 .rows = pass.tokens}));
}

}  // namespace octavo::engine
