#include "worker/engine/model/attention_block.h"

#include <cmath>

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Buffer;

namespace {

float Scale(const ModelShape& shape) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
}

}  // namespace

absl::StatusOr<AttentionBlock> AttentionBlock::Create(
    const std::string& layer, const ModelConfig& config, const ParameterIndex& parameters,
    const PrecisionPolicy& policy, bool for_training, kernels::Backend* backend) {
  const std::string prefix = layer + ".self_attn.";
  const auto norm = [&](const char* name) {
    return Norm::Create(layer + name, parameters, config.rms_norm_epsilon, backend);
  };
  AttentionBlock block;
  block.shape_ = config.shape;
  ASSIGN_OR_RETURN(block.norm_, norm(".input_layernorm"));
  ASSIGN_OR_RETURN(block.qkv_,
                   LinearGroup::Create({prefix + "q_proj", prefix + "k_proj", prefix + "v_proj"},
                                       parameters, policy, for_training, backend));
  ASSIGN_OR_RETURN(block.o_, LinearGroup::Create({prefix + "o_proj"}, parameters, policy,
                                                 for_training, backend));
  if (config.shape.qk_norm) {
    ASSIGN_OR_RETURN(block.q_norm_, norm(".self_attn.q_norm"));
    ASSIGN_OR_RETURN(block.k_norm_, norm(".self_attn.k_norm"));
  }
  return block;
}

absl::StatusOr<AttentionActivations> AttentionBlock::CreateActivations(
    int64_t max_tokens, kernels::Backend* backend) const {
  const int64_t N = max_tokens, Q = shape_.q_columns(), K = shape_.kv_columns();
  AttentionActivations activations;
  ASSIGN_OR_RETURN(activations.inverse_rms, Buffer<float>::Create(backend, N));
  ASSIGN_OR_RETURN(activations.input, qkv_.CreateKeptInput(N, backend));
  ASSIGN_OR_RETURN(activations.q, Buffer<bfloat16>::Create(backend, N * Q));
  ASSIGN_OR_RETURN(activations.k, Buffer<bfloat16>::Create(backend, N * K));
  ASSIGN_OR_RETURN(activations.v, Buffer<bfloat16>::Create(backend, N * K));
  ASSIGN_OR_RETURN(activations.result, Buffer<bfloat16>::Create(backend, N * Q));
  ASSIGN_OR_RETURN(activations.log_sum_exp, Buffer<float>::Create(backend, N * shape_.heads));
  if (!shape_.qk_norm) return activations;
  ASSIGN_OR_RETURN(activations.q_raw, Buffer<bfloat16>::Create(backend, N * Q));
  ASSIGN_OR_RETURN(activations.k_raw, Buffer<bfloat16>::Create(backend, N * K));
  ASSIGN_OR_RETURN(activations.q_inverse_rms, Buffer<float>::Create(backend, N * shape_.heads));
  ASSIGN_OR_RETURN(activations.k_inverse_rms, Buffer<float>::Create(backend, N * shape_.kv_heads));
  return activations;
}

absl::Status AttentionBlock::UpdateWeights(const float* master, const PolicyTable& policy,
                                           const NonfiniteCounters& nonfinite,
                                           kernels::Backend* backend) {
  RETURN_IF_ERROR(norm_.UpdateWeights(master, nonfinite, backend));
  if (q_norm_) RETURN_IF_ERROR(q_norm_->UpdateWeights(master, nonfinite, backend));
  if (k_norm_) RETURN_IF_ERROR(k_norm_->UpdateWeights(master, nonfinite, backend));
  RETURN_IF_ERROR(qkv_.UpdateWeights(master, policy, nonfinite, backend));
  return o_.UpdateWeights(master, policy, nonfinite, backend);
}

absl::Status AttentionBlock::Forward(const Pass& pass, const bfloat16* x, bfloat16* y,
                                     AttentionActivations* activations) const {
  RETURN_IF_ERROR(Project(pass, x, activations));
  RETURN_IF_ERROR(Position(pass, activations));
  RETURN_IF_ERROR(Attend(pass, activations));
  return o_.Forward(pass, activations->result.data(), {{.y = y, .residual = x}});
}

absl::Status AttentionBlock::Project(const Pass& pass, const bfloat16* x,
                                     AttentionActivations* activations) const {
  const kernels::RmsNormForward normalise =
      norm_.Forward(pass, {.x = x,
                           .y = pass.workspace->normalised.data(),
                           .inverse_rms = activations->inverse_rms.data(),
                           .rows = pass.tokens});
  bfloat16* const q = (shape_.qk_norm ? activations->q_raw : activations->q).data();
  bfloat16* const k = (shape_.qk_norm ? activations->k_raw : activations->k).data();
  return qkv_.Forward(pass, normalise, activations->input, {{q}, {k}, {activations->v.data()}});
}

kernels::Rope AttentionBlock::Rotation(const Pass& pass, bfloat16* x, int64_t heads) const {
  return {.x = x,
          .cosine = pass.cosine,
          .sine = pass.sine,
          .positions = pass.positions,
          .tokens = pass.tokens,
          .heads = heads,
          .head_dim = shape_.head_dim,
          .inverse = false};
}

absl::Status AttentionBlock::Position(const Pass& pass, AttentionActivations* activations) const {
  const kernels::Rope rotate_q = Rotation(pass, activations->q.data(), shape_.heads);
  const kernels::Rope rotate_k = Rotation(pass, activations->k.data(), shape_.kv_heads);
  if (!shape_.qk_norm) {
    RETURN_IF_ERROR(pass.backend->Run(rotate_q));
    return pass.backend->Run(rotate_k);
  }
  RETURN_IF_ERROR(pass.backend->Run(kernels::HeadNormRope{
      .norm = q_norm_->Forward(pass, {.x = activations->q_raw.data(),
                                      .y = nullptr,
                                      .inverse_rms = activations->q_inverse_rms.data(),
                                      .rows = pass.tokens * shape_.heads}),
      .rope = rotate_q}));
  return pass.backend->Run(kernels::HeadNormRope{
      .norm = k_norm_->Forward(pass, {.x = activations->k_raw.data(),
                                      .y = nullptr,
                                      .inverse_rms = activations->k_inverse_rms.data(),
                                      .rows = pass.tokens * shape_.kv_heads}),
      .rope = rotate_k});
}

absl::Status AttentionBlock::Attend(const Pass& pass, AttentionActivations* activations) const {
  return pass.backend->Run(kernels::AttentionForward{
      .q = activations->q.data(),
      .k = activations->k.data(),
      .v = activations->v.data(),
      .attend_from = pass.attend_from,
      .out = activations->result.data(),
      .log_sum_exp = pass.train ? activations->log_sum_exp.data() : nullptr,
      .q_tokens = pass.tokens,
      .kv_tokens = pass.tokens,
      .heads = shape_.heads,
      .kv_heads = shape_.kv_heads,
      .head_dim = shape_.head_dim,
      .scale = Scale(shape_)});
}

absl::Status AttentionBlock::Backward(const Pass& pass, const bfloat16* x,
                                      AttentionActivations* activations, bfloat16* dx) const {
  const Workspace& workspace = *pass.workspace;
  RETURN_IF_ERROR(o_.Backward(pass, {dx}, activations->result.data(), workspace.attention.data()));
  RETURN_IF_ERROR(BackwardAttend(pass, *activations));
  RETURN_IF_ERROR(BackwardPosition(pass, activations));
  const auto& dq = shape_.qk_norm ? activations->q : workspace.query_gradient;
  const auto& dk = shape_.qk_norm ? activations->k : workspace.key_gradient;
  bfloat16* const dnormalised = workspace.normalised.data();
  RETURN_IF_ERROR(qkv_.Backward(pass, {dq.data(), dk.data(), workspace.value_gradient.data()},
                                activations->input, dnormalised));
  return pass.backend->Run(norm_.Backward(pass, {.dy = dnormalised,
                                                 .x = x,
                                                 .inverse_rms = activations->inverse_rms.data(),
                                                 .dx_add = dx,
                                                 .dx = dx,
                                                 .rows = pass.tokens}));
}

absl::Status AttentionBlock::BackwardPosition(const Pass& pass,
                                              AttentionActivations* activations) const {
  const Workspace& workspace = *pass.workspace;
  kernels::Rope rotate_q = Rotation(pass, workspace.query_gradient.data(), shape_.heads);
  kernels::Rope rotate_k = Rotation(pass, workspace.key_gradient.data(), shape_.kv_heads);
  rotate_q.inverse = rotate_k.inverse = true;
  if (!shape_.qk_norm) {
    RETURN_IF_ERROR(pass.backend->Run(rotate_q));
    return pass.backend->Run(rotate_k);
  }
  RETURN_IF_ERROR(pass.backend->Run(kernels::HeadNormRopeBackward{
      .rope = rotate_q,
      .norm = q_norm_->Backward(pass, {.dy = nullptr,
                                       .x = activations->q_raw.data(),
                                       .inverse_rms = activations->q_inverse_rms.data(),
                                       .dx_add = nullptr,
                                       .dx = activations->q.data(),
                                       .rows = pass.tokens * shape_.heads})}));
  return pass.backend->Run(kernels::HeadNormRopeBackward{
      .rope = rotate_k,
      .norm = k_norm_->Backward(pass, {.dy = nullptr,
                                       .x = activations->k_raw.data(),
                                       .inverse_rms = activations->k_inverse_rms.data(),
                                       .dx_add = nullptr,
                                       .dx = activations->k.data(),
                                       .rows = pass.tokens * shape_.kv_heads})});
}

absl::Status AttentionBlock::BackwardAttend(const Pass& pass,
                                            const AttentionActivations& activations) const {
  const Workspace& workspace = *pass.workspace;
  return pass.backend->Run(kernels::AttentionBackward{.q = activations.q.data(),
                                                      .k = activations.k.data(),
                                                      .v = activations.v.data(),
                                                      .out = activations.result.data(),
                                                      .dout = workspace.attention.data(),
                                                      .log_sum_exp = activations.log_sum_exp.data(),
                                                      .attend_from = pass.attend_from,
                                                      .dq = workspace.query_gradient.data(),
                                                      .dk = workspace.key_gradient.data(),
                                                      .dv = workspace.value_gradient.data(),
                                                      .q_tokens = pass.tokens,
                                                      .kv_tokens = pass.tokens,
                                                      .heads = shape_.heads,
                                                      .kv_heads = shape_.kv_heads,
                                                      .head_dim = shape_.head_dim,
                                                      .scale = Scale(shape_)});
}

}  // namespace octavo::engine
