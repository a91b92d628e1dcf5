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
  RETURN_IF_ERROR(Attend(pass, activations));
  bfloat16* const branch = pass.workspace->branch.data();
  RETURN_IF_ERROR(o_.Forward(pass, activations->result.data(), {branch}));
  return pass.backend->Run(
      kernels::Add{.a = x, .b = branch, .y = y, .count = pass.tokens * shape_.hidden});
}

absl::Status AttentionBlock::Project(const Pass& pass, const bfloat16* x,
                                     AttentionActivations* activations) const {
  const auto normalise = [&](bfloat16* h) {
    return norm_.Forward(pass, x, pass.tokens, h, activations->inverse_rms.data());
  };
  const ProducedInput input = {.write = normalise, .scratch = pass.workspace->normalised.data()};
  bfloat16* const q = (shape_.qk_norm ? activations->q_raw : activations->q).data();
  bfloat16* const k = (shape_.qk_norm ? activations->k_raw : activations->k).data();
  RETURN_IF_ERROR(qkv_.Forward(pass, input, activations->input, {q, k, activations->v.data()}));
  if (!shape_.qk_norm) return absl::OkStatus();
  RETURN_IF_ERROR(q_norm_->Forward(pass, q, pass.tokens * shape_.heads, activations->q.data(),
                                   activations->q_inverse_rms.data()));
  return k_norm_->Forward(pass, k, pass.tokens * shape_.kv_heads, activations->k.data(),
                          activations->k_inverse_rms.data());
}

absl::Status AttentionBlock::Attend(const Pass& pass, AttentionActivations* activations) const {
  RETURN_IF_ERROR(Rotate(pass, activations->q.data(), activations->k.data(), /*inverse=*/false));
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

absl::Status AttentionBlock::Rotate(const Pass& pass, bfloat16* q, bfloat16* k,
                                    bool inverse) const {
  kernels::Rope rope = {.x = q,
                        .cosine = pass.cosine,
                        .sine = pass.sine,
                        .positions = pass.positions,
                        .tokens = pass.tokens,
                        .heads = shape_.heads,
                        .head_dim = shape_.head_dim,
                        .inverse = inverse};
  RETURN_IF_ERROR(pass.backend->Run(rope));
  rope.x = k;
  rope.heads = shape_.kv_heads;
  return pass.backend->Run(rope);
}

absl::Status AttentionBlock::Backward(const Pass& pass, const bfloat16* x,
                                      AttentionActivations* activations, bfloat16* dx) const {
  const Workspace& workspace = *pass.workspace;
  RETURN_IF_ERROR(o_.Backward(pass, {dx}, activations->result.data(), workspace.attention.data()));
  RETURN_IF_ERROR(BackwardAttend(pass, *activations));
  const bfloat16* dq = workspace.query_gradient.data();
  const bfloat16* dk = workspace.key_gradient.data();
  if (shape_.qk_norm) {
    RETURN_IF_ERROR(BackwardHeadNorms(pass, activations));
    dq = activations->q.data();
    dk = activations->k.data();
  }

  bfloat16* const dnormalised = workspace.normalised.data();
  RETURN_IF_ERROR(qkv_.Backward(pass, {dq, dk, workspace.value_gradient.data()}, activations->input,
                                dnormalised));
  return norm_.Backward(pass, {.dy = dnormalised,
                               .x = x,
                               .inverse_rms = activations->inverse_rms.data(),
                               .dx_add = dx,
                               .dx = dx,
                               .rows = pass.tokens});
}

absl::Status AttentionBlock::BackwardHeadNorms(const Pass& pass,
                                               AttentionActivations* activations) const {
  RETURN_IF_ERROR(q_norm_->Backward(pass, {.dy = pass.workspace->query_gradient.data(),
                                           .x = activations->q_raw.data(),
                                           .inverse_rms = activations->q_inverse_rms.data(),
                                           .dx_add = nullptr,
                                           .dx = activations->q.data(),
                                           .rows = pass.tokens * shape_.heads}));
  return k_norm_->Backward(pass, {.dy = pass.workspace->key_gradient.data(),
                                  .x = activations->k_raw.data(),
                                  .inverse_rms = activations->k_inverse_rms.data(),
                                  .dx_add = nullptr,
                                  .dx = activations->k.data(),
                                  .rows = pass.tokens * shape_.kv_heads});
}

absl::Status AttentionBlock::BackwardAttend(const Pass& pass,
                                            const AttentionActivations& activations) const {
  const Workspace& workspace = *pass.workspace;
  RETURN_IF_ERROR(
      pass.backend->Run(kernels::AttentionBackward{.q = activations.q.data(),
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
                                                   .scale = Scale(shape_)}));
  return Rotate(pass, workspace.query_gradient.data(), workspace.key_gradient.data(),
                /*inverse=*/true);
}

}  // namespace octavo::engine
