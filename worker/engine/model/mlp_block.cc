#include "worker/engine/model/mlp_block.h"

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Buffer;
using kernels::ResultType;

absl::StatusOr<MlpBlock> MlpBlock::Create(const std::string& layer, const ModelConfig& config,
                                          const ParameterIndex& parameters,
                                          const PrecisionPolicy& policy, bool for_training,
                                          kernels::Backend* backend) {
  const auto linear = [&](const char* name) {
    return Linear::Create(layer + name, parameters, policy, for_training, backend);
  };
  MlpBlock block;
  block.shape_ = config.shape;
  ASSIGN_OR_RETURN(block.norm_, Norm::Create(layer + ".post_attention_layernorm", parameters,
                                             config.rms_norm_epsilon, backend));
  ASSIGN_OR_RETURN(block.gate_, linear(".mlp.gate_proj"));
  ASSIGN_OR_RETURN(block.up_, linear(".mlp.up_proj"));
  ASSIGN_OR_RETURN(block.down_, linear(".mlp.down_proj"));
  return block;
}

absl::StatusOr<MlpActivations> MlpBlock::CreateActivations(int64_t max_tokens, bool for_training,
                                                           kernels::Backend* backend) const {
  const int64_t size = max_tokens * shape_.intermediate;
  MlpActivations activations;
  ASSIGN_OR_RETURN(activations.inverse_rms, Buffer<float>::Create(backend, max_tokens));
  ASSIGN_OR_RETURN(activations.input, KeptInput::Create({.max_tokens = max_tokens,
                                                         .columns = shape_.hidden,
                                                         .readers = ReadersOf({&gate_, &up_}),
                                                         .for_training = for_training},
                                                        backend));
  ASSIGN_OR_RETURN(activations.gate, Buffer<bfloat16>::Create(backend, size));
  ASSIGN_OR_RETURN(activations.up, Buffer<bfloat16>::Create(backend, size));
  ASSIGN_OR_RETURN(activations.activated, KeptInput::Create({.max_tokens = max_tokens,
                                                             .columns = shape_.intermediate,
                                                             .readers = ReadersOf({&down_}),
                                                             .for_training = for_training},
                                                            backend));
  return activations;
}

absl::Status MlpBlock::UpdateWeights(const float* master, const NonfiniteCounters& nonfinite,
                                     kernels::Backend* backend) {
  RETURN_IF_ERROR(norm_.UpdateWeights(master, nonfinite, backend));
  for (Linear* linear : {&gate_, &up_, &down_}) {
    RETURN_IF_ERROR(linear->UpdateWeights(master, nonfinite, backend));
  }
  return absl::OkStatus();
}

absl::Status MlpBlock::Forward(const Pass& pass, const bfloat16* x, bfloat16* y,
                               MlpActivations* activations) const {
  const Workspace& workspace = *pass.workspace;
  bfloat16* const normalised = activations->input.Destination(pass, workspace.normalised.data());
  RETURN_IF_ERROR(norm_.Forward(pass, x, pass.tokens, normalised, activations->inverse_rms.data()));
  ASSIGN_OR_RETURN(const LinearInput input,
                   activations->input.Prepare(pass, normalised, ReadersOf({&gate_, &up_})));
  RETURN_IF_ERROR(gate_.Forward(pass, input, activations->gate.data()));
  RETURN_IF_ERROR(up_.Forward(pass, input, activations->up.data()));

  bfloat16* const product = activations->activated.Destination(pass, workspace.activated.data());
  RETURN_IF_ERROR(
      pass.backend->Run(kernels::SwigluForward{.gate = activations->gate.data(),
                                               .up = activations->up.data(),
                                               .y = product,
                                               .count = pass.tokens * shape_.intermediate}));
  ASSIGN_OR_RETURN(const LinearInput activated,
                   activations->activated.Prepare(pass, product, ReadersOf({&down_})));
  RETURN_IF_ERROR(down_.Forward(pass, activated, workspace.branch.data()));
  return pass.backend->Run(kernels::Add{
      .a = x, .b = workspace.branch.data(), .y = y, .count = pass.tokens * shape_.hidden});
}

absl::Status MlpBlock::Backward(const Pass& pass, const bfloat16* x, MlpActivations* activations,
                                bfloat16* dx) const {
  const Workspace& workspace = *pass.workspace;
  bfloat16* const gate = activations->gate.data();
  bfloat16* const up = activations->up.data();
  bfloat16* const dactivated = workspace.activated.data();
  RETURN_IF_ERROR(down_.Backward(pass, dx, activations->activated.Restore(pass),
                                 {dactivated, ResultType::kBfloat16, /*accumulate=*/false}));
  RETURN_IF_ERROR(
      pass.backend->Run(kernels::SwigluBackward{.dy = dactivated,
                                                .gate = gate,
                                                .up = up,
                                                .dgate = gate,
                                                .dup = up,
                                                .count = pass.tokens * shape_.intermediate}));

  const LinearInput input = activations->input.Restore(pass);
  float* const sum = workspace.input_gradient.data();
  RETURN_IF_ERROR(
      gate_.Backward(pass, gate, input, {sum, ResultType::kFloat32, /*accumulate=*/false}));
  RETURN_IF_ERROR(up_.Backward(pass, up, input, {sum, ResultType::kFloat32, /*accumulate=*/true}));
  bfloat16* const dnormalised = workspace.normalised.data();
  RETURN_IF_ERROR(pass.backend->Run(
      kernels::CastToBfloat16{.x = sum, .y = dnormalised, .count = pass.tokens * shape_.hidden}));
  return norm_.Backward(pass, {.dy = dnormalised,
                               .x = x,
                               .inverse_rms = activations->inverse_rms.data(),
                               .dx_add = dx,
                               .dx = dx,
                               .rows = pass.tokens});
}

}  // namespace octavo::engine
