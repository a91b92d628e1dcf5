#include "worker/engine/model/transformer.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/model/attention_block.h"
#include "worker/engine/model/device_batch.h"
#include "worker/engine/model/head.h"
#include "worker/engine/model/mlp_block.h"
#include "worker/engine/model/weight.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/precision/policy.h"

namespace octavo::engine {
namespace {

using kernels::bfloat16;
using kernels::Buffer;

struct Layer {
  AttentionBlock attention;
  MlpBlock mlp;
};

// The residual stream where the blocks of one layer read it, and what they keep. An evaluation uses
// the first layer's for all.
struct LayerActivations {
  Buffer<bfloat16> attention_input;  // [N, D]
  Buffer<bfloat16> mlp_input;        // [N, D]; empty without training
  AttentionActivations attention;
  MlpActivations mlp;
};

class LayeredTransformer final : public Transformer {
 public:
  LayeredTransformer(const Options& options, PrecisionPolicy policy, kernels::Backend* backend)
      : shape_(options.config.shape),
        policy_(std::move(policy)),
        for_training_(options.for_training),
        max_tokens_(options.max_tokens),
        backend_(backend) {}

  absl::Status Allocate(const ModelConfig& config, const ParameterLayout& layout);

  absl::Status UpdateWeights(const Parameters& parameters, int64_t step) override;
  const PolicyTable& policy() const override { return policy_.At(next_step_); }
  absl::StatusOr<LossSum> Evaluate(const Batch& batch, const PolicyTable& policy) override;
  absl::Status Train(const Batch& batch, double gradient_scale,
                     const Parameters& parameters) override;
  absl::StatusOr<std::vector<float>> Logits(const Batch& batch, const std::vector<int64_t>& indices,
                                            const PolicyTable& policy) override;
  StepRecord& step() override { return step_; }

 private:
  absl::Status AllocateLayers(const ModelConfig& config, const ParameterIndex& index);
  absl::StatusOr<LayerActivations> AllocateActivations(const Layer& layer) const;
  // The policy must outlive the pass.
  absl::StatusOr<Pass> Begin(const Batch& batch, const PolicyTable& policy,
                             const NonfiniteCounters& nonfinite);
  const Bfloat16Weight& head_weight() const { return shape_.tied ? embedding_ : *untied_head_; }

  // The residual stream passes through the first layer's attention_input and stays there.
  absl::Status EvaluateLayers(const Pass& pass);
  // Keeps what backward needs; the residual stream behind the last layer lands in final_input_.
  absl::Status ForwardLayers(const Pass& pass);
  // `dx` holds d(loss)/d(residual behind the last layer) and becomes that before the first.
  absl::Status BackwardLayers(const Pass& pass, bfloat16* dx);
  absl::Status Embed(const Pass& pass);
  absl::Status AddLosses(const Pass& pass, kernels::LossTotal* total) const;

  const ModelShape shape_;
  const PrecisionPolicy policy_;
  const bool for_training_;
  const int64_t max_tokens_;
  kernels::Backend* const backend_;

  const float* master_ = nullptr;  // this and the next: set by UpdateWeights
  int64_t next_step_ = 1;
  Bfloat16Weight embedding_;
  std::optional<Bfloat16Weight> untied_head_;
  std::vector<Layer> layers_;
  Head head_;

  std::vector<LayerActivations> activations_;  // one per layer; without training one
  Buffer<bfloat16> final_input_;               // [N, D]; empty without training
  Workspace workspace_;
  DeviceBatch batch_;
  StepRecord step_;        // of training passes and of weights
  StepRecord evaluation_;  // of the evaluation at hand
};

absl::Status LayeredTransformer::Allocate(const ModelConfig& config,
                                          const ParameterLayout& layout) {
  const ParameterIndex index(layout);
  ASSIGN_OR_RETURN(embedding_,
                   Bfloat16Weight::Create(index.Get("model.embed_tokens.weight"), backend_));
  if (!shape_.tied) {
    ASSIGN_OR_RETURN(untied_head_, Bfloat16Weight::Create(index.Get("lm_head.weight"), backend_));
  }
  RETURN_IF_ERROR(AllocateLayers(config, index));
  ASSIGN_OR_RETURN(head_, Head::Create(config, index, max_tokens_, backend_));
  if (for_training_) {
    ASSIGN_OR_RETURN(final_input_, Buffer<bfloat16>::Create(backend_, max_tokens_ * shape_.hidden));
  }
  ASSIGN_OR_RETURN(workspace_, Workspace::Create(shape_,
                                                 {.max_tokens = max_tokens_,
                                                  .for_training = for_training_,
                                                  .any_fp8 = policy_.any_fp8()},
                                                 backend_));
  ASSIGN_OR_RETURN(batch_, DeviceBatch::Create(config, max_tokens_, backend_));
  ASSIGN_OR_RETURN(step_, StepRecord::Create(layout, backend_));
  ASSIGN_OR_RETURN(evaluation_, StepRecord::Create(layout, backend_));
  return backend_->Reserve(LargestOperationsOf(shape_, {.micro_batch = 1,
                                                        .sequence = max_tokens_,
                                                        .fp8 = policy_.any_fp8(),
                                                        .for_training = for_training_}));
}

absl::Status LayeredTransformer::AllocateLayers(const ModelConfig& config,
                                                const ParameterIndex& index) {
  for (int64_t i = 0; i < shape_.layers; ++i) {
    const std::string name = absl::StrCat("model.layers.", i);
    Layer layer;
    ASSIGN_OR_RETURN(layer.attention,
                     AttentionBlock::Create(name, config, index, policy_, for_training_, backend_));
    ASSIGN_OR_RETURN(layer.mlp,
                     MlpBlock::Create(name, config, index, policy_, for_training_, backend_));
    if (for_training_ || i == 0) {
      ASSIGN_OR_RETURN(LayerActivations activations, AllocateActivations(layer));
      activations_.push_back(std::move(activations));
    }
    layers_.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerActivations> LayeredTransformer::AllocateActivations(const Layer& layer) const {
  const int64_t size = max_tokens_ * shape_.hidden;
  LayerActivations activations;
  ASSIGN_OR_RETURN(activations.attention_input, Buffer<bfloat16>::Create(backend_, size));
  if (for_training_) {
    ASSIGN_OR_RETURN(activations.mlp_input, Buffer<bfloat16>::Create(backend_, size));
  }
  ASSIGN_OR_RETURN(activations.attention, layer.attention.CreateActivations(max_tokens_, backend_));
  ASSIGN_OR_RETURN(activations.mlp, layer.mlp.CreateActivations(max_tokens_, backend_));
  return activations;
}

absl::Status LayeredTransformer::UpdateWeights(const Parameters& parameters, int64_t step) {
  master_ = parameters.master();
  next_step_ = step;
  const NonfiniteCounters& nonfinite = step_.nonfinite();
  RETURN_IF_ERROR(nonfinite.ClearWeights(backend_));
  RETURN_IF_ERROR(embedding_.Update(master_, nonfinite, backend_));
  if (untied_head_) RETURN_IF_ERROR(untied_head_->Update(master_, nonfinite, backend_));
  for (Layer& layer : layers_) {
    RETURN_IF_ERROR(layer.attention.UpdateWeights(master_, policy(), nonfinite, backend_));
    RETURN_IF_ERROR(layer.mlp.UpdateWeights(master_, policy(), nonfinite, backend_));
  }
  return head_.UpdateWeights(master_, nonfinite, backend_);
}

absl::StatusOr<Pass> LayeredTransformer::Begin(const Batch& batch, const PolicyTable& policy,
                                               const NonfiniteCounters& nonfinite) {
  CHECK(master_ != nullptr);  // UpdateWeights comes first
  if (policy.any_fp8_forward() && !policy_.any_fp8()) {
    return absl::FailedPreconditionError(
        "recipe \"bf16\" has no memory for an evaluation in FP8; evaluate under recipe \"fp8\"");
  }
  RETURN_IF_ERROR(batch_.Upload(batch, backend_));
  Pass pass = {};
  pass.backend = backend_;
  pass.workspace = &workspace_;
  pass.policy = &policy;
  pass.master = master_;
  pass.nonfinite = &nonfinite;
  batch_.Describe(&pass);
  return pass;
}

absl::Status LayeredTransformer::Embed(const Pass& pass) {
  return backend_->Run(kernels::EmbeddingForward{.table = embedding_.data(),
                                                 .ids = pass.ids,
                                                 .y = activations_[0].attention_input.data(),
                                                 .tokens = pass.tokens,
                                                 .columns = shape_.hidden});
}

absl::Status LayeredTransformer::EvaluateLayers(const Pass& pass) {
  RETURN_IF_ERROR(Embed(pass));
  LayerActivations& scratch = activations_[0];
  bfloat16* const x = scratch.attention_input.data();
  for (const Layer& layer : layers_) {
    RETURN_IF_ERROR(layer.attention.Forward(pass, x, x, &scratch.attention));
    RETURN_IF_ERROR(layer.mlp.Forward(pass, x, x, &scratch.mlp));
  }
  return absl::OkStatus();
}

absl::Status LayeredTransformer::ForwardLayers(const Pass& pass) {
  RETURN_IF_ERROR(Embed(pass));
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerActivations& kept = activations_[i];
    const bool last = i + 1 == layers_.size();
    bfloat16* const next = last ? final_input_.data() : activations_[i + 1].attention_input.data();
    RETURN_IF_ERROR(layers_[i].attention.Forward(pass, kept.attention_input.data(),
                                                 kept.mlp_input.data(), &kept.attention));
    RETURN_IF_ERROR(layers_[i].mlp.Forward(pass, kept.mlp_input.data(), next, &kept.mlp));
  }
  return absl::OkStatus();
}

absl::Status LayeredTransformer::BackwardLayers(const Pass& pass, bfloat16* dx) {
  for (size_t i = layers_.size(); i-- > 0;) {
    LayerActivations& kept = activations_[i];
    RETURN_IF_ERROR(layers_[i].mlp.Backward(pass, kept.mlp_input.data(), &kept.mlp, dx));
    RETURN_IF_ERROR(
        layers_[i].attention.Backward(pass, kept.attention_input.data(), &kept.attention, dx));
  }
  return absl::OkStatus();
}

absl::StatusOr<LossSum> LayeredTransformer::Evaluate(const Batch& batch,
                                                     const PolicyTable& policy) {
  RETURN_IF_ERROR(evaluation_.Begin(/*learning_rate=*/0));
  ASSIGN_OR_RETURN(const Pass pass, Begin(batch, policy, evaluation_.nonfinite()));
  RETURN_IF_ERROR(EvaluateLayers(pass));
  RETURN_IF_ERROR(head_.Loss(pass, head_weight(), activations_[0].attention_input.data()));
  RETURN_IF_ERROR(AddLosses(pass, &evaluation_.state()->loss));
  ASSIGN_OR_RETURN(const StepReading pass_met, evaluation_.Read());
  ASSIGN_OR_RETURN(const StepReading weights_met, step_.Read());
  LossSum loss = {.sum = pass_met.state.loss.sum, .tokens = pass_met.state.loss.tokens};
  if (pass_met.nonfinite.any() || weights_met.nonfinite.of(NonfiniteKind::kWeight) > 0) {
    loss.sum = std::numeric_limits<double>::quiet_NaN();
  }
  return loss;
}

absl::Status LayeredTransformer::Train(const Batch& batch, double gradient_scale,
                                       const Parameters& parameters) {
  CHECK(for_training_);
  // Without a target every gradient is exactly zero.
  if (CountTargets(batch) == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Pass pass, Begin(batch, policy(), step_.nonfinite()));
  pass.train = true;
  pass.gradient = parameters.gradient();
  RETURN_IF_ERROR(ForwardLayers(pass));
  bfloat16* const dx = workspace_.residual_gradient.data();
  RETURN_IF_ERROR(head_.LossAndGradient(pass, head_weight(), final_input_.data(),
                                        static_cast<float>(gradient_scale), dx));
  RETURN_IF_ERROR(AddLosses(pass, &step_.state()->loss));
  if (step_.TakeFirst()) RETURN_IF_ERROR(AddLosses(pass, &step_.state()->first_loss));
  RETURN_IF_ERROR(BackwardLayers(pass, dx));
  return backend_->Run(kernels::EmbeddingBackward{.dy = dx,
                                                  .ids = pass.ids,
                                                  .dtable = pass.gradient + embedding_.offset(),
                                                  .tokens = pass.tokens,
                                                  .columns = shape_.hidden,
                                                  .vocabulary = shape_.vocabulary});
}

absl::StatusOr<std::vector<float>> LayeredTransformer::Logits(const Batch& batch,
                                                              const std::vector<int64_t>& indices,
                                                              const PolicyTable& policy) {
  for (const int64_t index : indices) CHECK(index >= 0 && index < batch.tokens());
  ASSIGN_OR_RETURN(const Pass pass, Begin(batch, policy, evaluation_.nonfinite()));
  RETURN_IF_ERROR(EvaluateLayers(pass));
  return head_.Logits(pass, head_weight(), activations_[0].attention_input.data(), indices);
}

absl::Status LayeredTransformer::AddLosses(const Pass& pass, kernels::LossTotal* total) const {
  return backend_->Run(kernels::AddLosses{.loss = workspace_.loss.data(),
                                          .targets = pass.targets,
                                          .tokens = pass.tokens,
                                          .total = total});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const Options& options,
                                                                 const ParameterLayout& layout,
                                                                 kernels::Backend* backend) {
  ASSIGN_OR_RETURN(PrecisionPolicy policy, PrecisionPolicy::Create(options.recipe, layout));
  auto transformer = std::make_unique<LayeredTransformer>(options, std::move(policy), backend);
  RETURN_IF_ERROR(transformer->Allocate(options.config, layout));
  return transformer;
}

}  // namespace octavo::engine
