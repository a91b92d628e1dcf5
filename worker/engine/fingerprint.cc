#include "worker/engine/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace octavo::engine {
namespace {

std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(double value) { return absl::StrFormat("%.17g", value); }
std::string Text(bool value) { return value ? "true" : "false"; }

absl::string_view KindText(SchedulePlan::Kind kind) {
  switch (kind) {
    case SchedulePlan::Kind::kWsd:
      return "wsd";
    case SchedulePlan::Kind::kCosine:
      return "cosine";
    case SchedulePlan::Kind::kConstant:
      return "constant";
  }
  return "";
}

std::string RopeScalingText(const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone:
      return "none";
    case RopeConfig::Scaling::kLlama3:
      return absl::StrJoin(
          {std::string("llama3"), Text(rope.factor), Text(rope.low_frequency_factor),
           Text(rope.high_frequency_factor), Text(rope.original_max_positions)},
          " ");
    case RopeConfig::Scaling::kYarn:
      return absl::StrJoin(
          {std::string("yarn"), Text(rope.factor), Text(rope.beta_fast), Text(rope.beta_slow),
           Text(rope.attention_factor), Text(rope.original_max_positions)},
          " ");
  }
  return "";
}

void AddModel(const ModelConfig& config, Fingerprint* fingerprint) {
  const ModelShape& shape = config.shape;
  fingerprint->insert({
      {"model.config.model_type", config.model_type},
      {"model.config.vocab_size", Text(shape.vocabulary)},
      {"model.config.hidden_size", Text(shape.hidden)},
      {"model.config.intermediate_size", Text(shape.intermediate)},
      {"model.config.num_hidden_layers", Text(shape.layers)},
      {"model.config.num_attention_heads", Text(shape.heads)},
      {"model.config.num_key_value_heads", Text(shape.kv_heads)},
      {"model.config.head_dim", Text(shape.head_dim)},
      {"model.config.attention_bias", Text(shape.qkv_bias)},
      {"model.config.qk_norm", Text(shape.qk_norm)},
      {"model.config.tie_word_embeddings", Text(shape.tied)},
      {"model.config.rms_norm_eps", Text(config.rms_norm_epsilon)},
      {"model.config.rope_theta", Text(config.rope.theta)},
      {"model.config.rope_scaling", RopeScalingText(config.rope)},
      {"model.config.sliding_window", Text(config.sliding_window)},
  });
}

void AddTraining(const RunPlan& plan, Fingerprint* fingerprint) {
  const OptimizerPlan& optimizer = plan.optimizer;
  const bool fp8 = plan.recipe.precision == RecipePlan::Precision::kFp8;
  fingerprint->insert({
      {"recipe.name", fp8 ? "fp8" : "bf16"},
      {"recipe.keep_bf16", absl::StrJoin(plan.recipe.keep_bf16, " ")},
      {"optimizer.learning_rate", Text(optimizer.learning_rate)},
      {"optimizer.min_learning_rate", Text(optimizer.min_learning_rate)},
      {"optimizer.beta1", Text(optimizer.beta1)},
      {"optimizer.beta2", Text(optimizer.beta2)},
      {"optimizer.epsilon", Text(optimizer.epsilon)},
      {"optimizer.weight_decay", Text(optimizer.weight_decay)},
      {"optimizer.clip_norm", Text(optimizer.clip_norm)},
      {"schedule.kind", std::string(KindText(plan.schedule.kind))},
      {"schedule.warmup_steps", Text(plan.schedule.warmup_steps)},
      {"schedule.decay_steps", Text(plan.schedule.decay_steps)},
      {"batch.micro_batch", Text(plan.micro_batch)},
      {"batch.gradient_accumulation", Text(plan.gradient_accumulation)},
      {"steps", Text(plan.steps)},
      {"seed", absl::StrCat(plan.seed)},
  });
}

}  // namespace

Fingerprint MakeFingerprint(const RunPlan& plan, const ModelConfig& config,
                            const std::string& corpus_sha256, const std::string& tokenizer_sha256) {
  Fingerprint fingerprint = {
      {"data.sequence_length", Text(plan.data.sequence_length)},
      {"data.isolate_documents", Text(plan.data.isolate_documents)},
      {"data.tokenizer (SHA-256)", tokenizer_sha256},
      {"data (SHA-256 of files, tokenizer and packing)", corpus_sha256},
      {"evaluation.holdout_tokens", Text(plan.evaluation.holdout_tokens)},
  };
  AddModel(config, &fingerprint);
  AddTraining(plan, &fingerprint);
  return fingerprint;
}

}  // namespace octavo::engine
