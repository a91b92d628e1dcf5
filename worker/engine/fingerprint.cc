#include "worker/engine/fingerprint.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace octavo::engine {
namespace {

constexpr char kEngine[] = "engine.version";
constexpr char kCorpus[] = "data (SHA-256 of files, tokenizer and packing)";

std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(double value) { return absl::StrFormat("%.17g", value); }
std::string Text(bool value) { return value ? "true" : "false"; }

absl::string_view KindText(ScheduleSpec::Kind kind) {
  switch (kind) {
    case ScheduleSpec::Kind::kWsd:
      return "wsd";
    case ScheduleSpec::Kind::kCosine:
      return "cosine";
    case ScheduleSpec::Kind::kConstant:
      return "constant";
  }
  return "";
}

std::string Text(const std::optional<GemmPrecision>& precision) {
  return !precision ? "-" : *precision == GemmPrecision::kFp8 ? "fp8" : "bf16";
}

// Globs, fprop, dgrad, wgrad, gradient, first and last step of each rule.
std::string RulesText(const std::vector<PrecisionRule>& rules) {
  return absl::StrJoin(rules, "; ", [](std::string* out, const PrecisionRule& rule) {
    const char* const gradient = !rule.gradient                              ? "-"
                                 : *rule.gradient == kernels::Element::kE5M2 ? "e5m2"
                                                                             : "e4m3";
    absl::StrAppend(out, absl::StrJoin(rule.modules, " "), ": ", Text(rule.fprop), " ",
                    Text(rule.dgrad), " ", Text(rule.wgrad), " ", gradient, " ", rule.from_step,
                    "-", rule.until_step);
  });
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

void AddTraining(const RunSpec& spec, Fingerprint* fingerprint) {
  const OptimizerSpec& optimizer = spec.optimizer;
  const bool fp8 = spec.recipe.precision == RecipeSpec::Precision::kFp8;
  fingerprint->insert({
      {"recipe.name", fp8 ? "fp8" : "bf16"},
      {"recipe.keep_bf16", absl::StrJoin(spec.recipe.keep_bf16, " ")},
      {"recipe.rules", RulesText(spec.recipe.rules)},
      {"optimizer.learning_rate", Text(optimizer.learning_rate)},
      {"optimizer.min_learning_rate", Text(optimizer.min_learning_rate)},
      {"optimizer.beta1", Text(optimizer.beta1)},
      {"optimizer.beta2", Text(optimizer.beta2)},
      {"optimizer.epsilon", Text(optimizer.epsilon)},
      {"optimizer.weight_decay", Text(optimizer.weight_decay)},
      {"optimizer.clip_norm", Text(optimizer.clip_norm)},
      {"schedule.kind", std::string(KindText(spec.schedule.kind))},
      {"schedule.warmup_steps", Text(spec.schedule.warmup_steps)},
      {"schedule.decay_steps", Text(spec.schedule.decay_steps)},
      {"batch.micro_batch", Text(spec.micro_batch)},
      {"batch.gradient_accumulation", Text(spec.gradient_accumulation)},
      {"steps", Text(spec.steps)},
      {"seed", absl::StrCat(spec.seed)},
  });
}

// Removes what a run that extends another may choose anew.
void EraseFree(Fingerprint* fingerprint) {
  for (const char* field :
       {"steps", "schedule.kind", "schedule.warmup_steps", "schedule.decay_steps",
        "optimizer.learning_rate", "optimizer.min_learning_rate"}) {
    fingerprint->erase(field);
  }
}

}  // namespace

Fingerprint MakeFingerprint(const RunSpec& spec, const ModelConfig& config,
                            const std::string& corpus_sha256, const std::string& tokenizer_sha256) {
  Fingerprint fingerprint = {
      {kEngine, Text(kEngineVersion)},
      {"data.sequence_length", Text(spec.data.sequence_length)},
      {"data.isolate_documents", Text(spec.data.isolate_documents)},
      {"data.tokenizer (SHA-256)", tokenizer_sha256},
      {kCorpus, corpus_sha256},
      {"evaluation.holdout_tokens", Text(spec.evaluation.holdout_tokens)},
  };
  AddModel(config, &fingerprint);
  AddTraining(spec, &fingerprint);
  return fingerprint;
}

std::vector<std::string> Differences(const Fingerprint& then, const Fingerprint& now) {
  std::vector<std::string> differences;
  for (const auto& [field, value] : now) {
    const auto found = then.find(field);
    const std::string before = found == then.end() ? "absent" : found->second;
    if (before != value) {
      differences.push_back(absl::StrCat(field, " was ", before, " and is ", value));
    }
  }
  for (const auto& [field, value] : then) {
    if (now.count(field) == 0) {
      differences.push_back(absl::StrCat(field, " was ", value, " and is absent"));
    }
  }
  return differences;
}

std::string CorpusOf(const Fingerprint& fingerprint) {
  const auto found = fingerprint.find(kCorpus);
  return found == fingerprint.end() ? "" : found->second;
}

absl::Status CheckContinues(const Fingerprint& then, const Fingerprint& now,
                            Continuation continuation) {
  const auto engine = then.find(kEngine);
  if (engine == then.end() || engine->second != Text(kEngineVersion)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint was written by engine version ",
        engine == then.end() ? "1" : engine->second, ", this program has version ", kEngineVersion,
        " and would give other numbers; go on with the program that wrote it, or start a new job"));
  }
  Fingerprint before = then;
  Fingerprint after = now;
  if (continuation == Continuation::kExtend) {
    EraseFree(&before);
    EraseFree(&after);
  }
  const std::vector<std::string> differences = Differences(before, after);
  if (differences.empty()) return absl::OkStatus();
  const std::string list = absl::StrJoin(differences, "; ");
  return absl::FailedPreconditionError(
      continuation == Continuation::kResume
          ? absl::StrCat("the checkpoint is of another run: ", list,
                         "; restore what changed or start a new job")
          : absl::StrCat("the checkpoint's run cannot be extended so: ", list,
                         "; only steps, schedule, optimizer.learning_rate and "
                         "optimizer.min_learning_rate may differ from the run that is extended"));
}

}  // namespace octavo::engine
