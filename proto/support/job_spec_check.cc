// Defaults and ranges, as spec.proto documents them.
#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "proto/support/job_spec.h"

namespace octavo {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// Collects violations under a path prefix.
class Checker {
 public:
  Checker(std::string prefix, std::vector<v1::Violation>* violations)
      : prefix_(std::move(prefix)), violations_(violations) {}

  void Add(absl::string_view field, const std::string& message) const {
    v1::Violation violation;
    violation.set_field(absl::StrCat(prefix_, field));
    violation.set_message(message);
    violations_->push_back(violation);
  }

  template <typename Number>
  void Range(absl::string_view field, Number value, Number low, Number high) const {
    if (value >= low && value <= high) return;
    Add(field, absl::StrCat(value, " is outside the range [", low, ", ", high, "]"));
  }

  void Positive(absl::string_view field, double value) const {
    if (value > 0) return;
    Add(field, absl::StrCat(value, " must be greater than 0"));
  }

  void OneOf(absl::string_view field, const std::string& value,
             absl::Span<const absl::string_view> allowed) const {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    Add(field, absl::StrCat("\"", value, "\" is not one of ", absl::StrJoin(allowed, ", ")));
  }

  // Workers resolve paths, perhaps on another machine and certainly in another folder.
  void AbsolutePath(absl::string_view field, const std::string& path) const {
    if (path.empty()) {
      Add(field, "a path is required");
    } else if (path[0] != '/') {
      Add(field, absl::StrCat("\"", path,
                              "\" is a relative path; write an absolute one, as workers see it"));
    } else if (absl::StrContains(path, '\0')) {
      Add(field, "the path holds a NUL character");
    }
  }

 private:
  std::string prefix_;
  std::vector<v1::Violation>* violations_;
};

void DefaultString(const std::string& value, std::string* field) {
  if (field->empty()) *field = value;
}

// A step that is counted from the end of `steps`, counted from 1. One before the first stays as it
// is, for the message.
int64_t FromStart(int64_t step, int64_t steps) {
  return step < 0 && step >= -steps ? steps + 1 + step : step;
}

void FillRuleDefaults(int64_t steps, v1::Recipe* recipe) {
  for (v1::PrecisionRule& rule : *recipe->mutable_rules()) {
    if (rule.from_step() == 0) rule.set_from_step(1);
    rule.set_from_step(FromStart(rule.from_step(), steps));
    rule.set_until_step(FromStart(rule.until_step(), steps));
  }
}

void FillStageDefaults(v1::Stage* stage) {
  DefaultString("weights", stage->mutable_model()->mutable_initialisation());

  v1::DataSource* data = stage->mutable_data();
  DefaultString("text", data->mutable_text_field());
  DefaultString("folder", data->mutable_tokenizer());
  DefaultString("error", data->mutable_on_bad_row());
  if (!data->has_isolate_documents()) data->set_isolate_documents(true);
  if (!data->has_holdout_fraction()) data->set_holdout_fraction(0.01);

  DefaultString("fp8", stage->mutable_recipe()->mutable_name());
  FillRuleDefaults(stage->steps(), stage->mutable_recipe());

  v1::Optimizer* optimizer = stage->mutable_optimizer();
  if (!optimizer->has_min_learning_rate())
    optimizer->set_min_learning_rate(optimizer->learning_rate() / 10);
  if (!optimizer->has_beta1()) optimizer->set_beta1(0.9);
  if (!optimizer->has_beta2()) optimizer->set_beta2(0.95);
  if (!optimizer->has_epsilon()) optimizer->set_epsilon(1e-8);
  if (!optimizer->has_weight_decay()) optimizer->set_weight_decay(0.1);
  if (!optimizer->has_clip_norm()) optimizer->set_clip_norm(1.0);

  v1::Schedule* schedule = stage->mutable_schedule();
  DefaultString("wsd", schedule->mutable_kind());
  if (schedule->kind() == "wsd" && !schedule->has_decay_steps()) {
    schedule->set_decay_steps(std::min(
        stage->steps() / 10, std::max<int64_t>(0, stage->steps() - schedule->warmup_steps())));
  }

  v1::Batching* batch = stage->mutable_batch();
  if (batch->micro_batch() == 0) batch->set_micro_batch(1);
  if (batch->gradient_accumulation() == 0) batch->set_gradient_accumulation(1);

  v1::CheckpointPolicy* checkpoint = stage->mutable_checkpoint();
  if (checkpoint->keep() == 0) checkpoint->set_keep(2);
  DefaultString("bf16", checkpoint->mutable_export_format());

  v1::DivergencePolicy* divergence = stage->mutable_divergence();
  if (!divergence->has_probe_every_steps()) divergence->set_probe_every_steps(10);

  v1::Evaluation* evaluation = stage->mutable_evaluation();
  if (!evaluation->has_holdout_tokens()) evaluation->set_holdout_tokens(16384);
  if (evaluation->exact_match_limit() == 0) evaluation->set_exact_match_limit(512);
  if (evaluation->exact_match_max_new_tokens() == 0) {
    evaluation->set_exact_match_max_new_tokens(
        std::max(1, std::min(32, data->sequence_length() - 1)));
  }
}

void CheckModelAndData(const v1::Stage& stage, const Checker& check) {
  check.AbsolutePath("model.folder", stage.model().folder());
  check.OneOf("model.initialisation", stage.model().initialisation(), {"weights", "random"});
  if (!stage.extend_checkpoint().empty()) {
    check.AbsolutePath("extend_checkpoint", stage.extend_checkpoint());
  }

  const v1::DataSource& data = stage.data();
  if (data.files().empty()) check.Add("data.files", "at least one training file is required");
  for (int i = 0; i < data.files_size(); ++i) {
    check.AbsolutePath(absl::StrCat("data.files[", i, "]"), data.files(i));
  }
  for (int i = 0; i < data.holdout_files_size(); ++i) {
    check.AbsolutePath(absl::StrCat("data.holdout_files[", i, "]"), data.holdout_files(i));
  }
  check.OneOf("data.tokenizer", data.tokenizer(), {"folder", "byte"});
  check.OneOf("data.on_bad_row", data.on_bad_row(), {"error", "skip"});
  if (data.sequence_length() == 0) {
    check.Add("data.sequence_length",
              "the length of a training row in tokens is required, e.g. 512");
  } else {
    check.Range<int64_t>("data.sequence_length", data.sequence_length(), 2, 1 << 20);
  }
  check.Range("data.holdout_fraction", data.holdout_fraction(), 0.0, 0.5);
}

void CheckOptimizer(const v1::Stage& stage, const Checker& check) {
  const v1::Optimizer& optimizer = stage.optimizer();
  if (optimizer.learning_rate() == 0) {
    check.Add("optimizer.learning_rate", "a peak learning rate is required, e.g. 1e-4");
  } else {
    check.Positive("optimizer.learning_rate", optimizer.learning_rate());
    check.Range("optimizer.min_learning_rate", optimizer.min_learning_rate(), 0.0,
                std::max(0.0, optimizer.learning_rate()));
  }
  for (const auto& [field, beta] : {std::pair("optimizer.beta1", optimizer.beta1()),
                                    std::pair("optimizer.beta2", optimizer.beta2())}) {
    if (beta < 0 || beta >= 1) check.Add(field, absl::StrCat(beta, " is outside the range [0, 1)"));
  }
  check.Positive("optimizer.epsilon", optimizer.epsilon());
  check.Range("optimizer.weight_decay", optimizer.weight_decay(), 0.0, 1e6);
  check.Range("optimizer.clip_norm", optimizer.clip_norm(), 0.0, 1e30);
}

void CheckSchedule(const v1::Stage& stage, const Checker& check) {
  const v1::Schedule& schedule = stage.schedule();
  check.OneOf("schedule.kind", schedule.kind(), {"wsd", "cosine", "constant"});
  if (stage.steps() < 1) return;  // reported by the stage; ranges below would repeat it
  check.Range<int64_t>("schedule.warmup_steps", schedule.warmup_steps(), 0, stage.steps() - 1);
  if (schedule.kind() == "wsd") {
    check.Range<int64_t>("schedule.decay_steps", schedule.decay_steps(), 0,
                         std::max<int64_t>(0, stage.steps() - schedule.warmup_steps()));
  } else if (schedule.has_decay_steps()) {
    check.Add("schedule.decay_steps",
              absl::StrCat("only \"wsd\" has a decay of its own; remove it, or change kind \"",
                           schedule.kind(), "\""));
  }
}

constexpr int kMaxRules = 100;

void CheckRule(const v1::Stage& stage, const v1::PrecisionRule& rule, const std::string& path,
               const Checker& check) {
  const auto one_of = [&](const char* field, const std::string& value,
                          absl::Span<const absl::string_view> allowed) {
    if (!value.empty()) check.OneOf(absl::StrCat(path, ".", field), value, allowed);
  };
  one_of("fprop", rule.fprop(), {"fp8", "bf16"});
  one_of("dgrad", rule.dgrad(), {"fp8", "bf16"});
  one_of("wgrad", rule.wgrad(), {"fp8", "bf16"});
  one_of("gradient", rule.gradient(), {"e4m3", "e5m2"});
  if (absl::StrCat(rule.fprop(), rule.dgrad(), rule.wgrad(), rule.gradient()).empty()) {
    check.Add(path, "it changes nothing; write fprop, dgrad, wgrad or gradient, or remove it");
  }
  if (stage.steps() < 1) return;  // reported by the stage; ranges below would repeat it
  check.Range<int64_t>(absl::StrCat(path, ".from_step"), rule.from_step(), 1, stage.steps());
  if (rule.until_step() == 0) return;
  check.Range<int64_t>(absl::StrCat(path, ".until_step"), rule.until_step(),
                       std::max<int64_t>(1, rule.from_step()), stage.steps());
}

void CheckRules(const v1::Stage& stage, const Checker& check) {
  const v1::Recipe& recipe = stage.recipe();
  if (recipe.name() == "bf16" && !recipe.rules().empty()) {
    check.Add("recipe.rules", "every GEMM is BF16 in recipe \"bf16\"; remove it or choose \"fp8\"");
  }
  if (recipe.rules_size() > kMaxRules) {
    check.Add("recipe.rules",
              absl::StrCat(recipe.rules_size(), " rules are above the limit of ", kMaxRules));
    return;
  }
  for (int i = 0; i < recipe.rules_size(); ++i) {
    CheckRule(stage, recipe.rules(i), absl::StrCat("recipe.rules[", i, "]"), check);
  }
}

void CheckStage(const v1::Stage& stage, const Checker& check) {
  check.OneOf("kind", stage.kind(), {"cpt"});
  if (stage.steps() == 0) {
    check.Add("steps", "the number of optimizer steps is required, e.g. 100");
  } else {
    check.Range<int64_t>("steps", stage.steps(), 1, kMaxCount);
  }
  CheckModelAndData(stage, check);
  CheckRules(stage, check);
  check.OneOf("recipe.name", stage.recipe().name(), {"fp8", "bf16"});
  if (stage.recipe().name() == "bf16" && !stage.recipe().keep_bf16().empty()) {
    check.Add("recipe.keep_bf16", "with recipe \"bf16\" every layer is in BF16 already; remove it");
  }
  CheckOptimizer(stage, check);
  CheckSchedule(stage, check);
  check.Range("batch.micro_batch", stage.batch().micro_batch(), 1, 65536);
  check.Range("batch.gradient_accumulation", stage.batch().gradient_accumulation(), 1, 65536);
  check.Range<int64_t>("checkpoint.every_steps", stage.checkpoint().every_steps(), 0, kMaxCount);
  check.Range("checkpoint.keep", stage.checkpoint().keep(), 1, 1000);
  check.OneOf("checkpoint.export_format", stage.checkpoint().export_format(), {"bf16", "none"});
  check.Range<int64_t>("divergence.probe_every_steps", stage.divergence().probe_every_steps(), 0,
                       kMaxCount);
  const v1::Evaluation& evaluation = stage.evaluation();
  check.Range<int64_t>("evaluation.holdout_tokens", evaluation.holdout_tokens(), 0, kMaxCount);
  if (!evaluation.exact_match_file().empty()) {
    check.AbsolutePath("evaluation.exact_match_file", evaluation.exact_match_file());
    check.Range<int64_t>("evaluation.exact_match_limit", evaluation.exact_match_limit(), 1,
                         kMaxCount);
    check.Range("evaluation.exact_match_max_new_tokens", evaluation.exact_match_max_new_tokens(), 1,
                std::max(1, stage.data().sequence_length() - 1));
  }
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

}  // namespace

void FillDefaults(v1::JobSpec* spec) {
  DefaultString("cpu", spec->mutable_resources()->mutable_device_kind());
  if (spec->resources().devices() == 0) spec->mutable_resources()->set_devices(1);
  if (!spec->mutable_retries()->has_max_restarts()) spec->mutable_retries()->set_max_restarts(10);
  for (v1::Stage& stage : *spec->mutable_stages()) FillStageDefaults(&stage);
}

std::vector<v1::Violation> CheckJobSpec(const v1::JobSpec& spec) {
  std::vector<v1::Violation> violations;
  const Checker check("", &violations);
  if (!IsName(spec.name())) {
    check.Add("name",
              absl::StrCat("\"", spec.name(), "\" must be 1 to 63 characters of a-z, 0-9 and -"));
  }
  check.Range("priority", spec.priority(), -1000, 1000);
  check.OneOf("resources.device_kind", spec.resources().device_kind(), {"cpu", "gpu"});
  check.Range("resources.devices", spec.resources().devices(), 1, 1);
  check.Range<int64_t>("resources.memory_bytes", spec.resources().memory_bytes(), 0,
                       int64_t{1} << 50);
  check.Range("retries.max_restarts", spec.retries().max_restarts(), 0, 1000);
  check.AbsolutePath("output_folder", spec.output_folder());
  if (spec.stages_size() != 1) {
    check.Add("stages",
              absl::StrCat(spec.stages_size(), " stages are given; this version runs exactly one"));
  }
  for (int i = 0; i < spec.stages_size(); ++i) {
    CheckStage(spec.stages(i), Checker(absl::StrCat("stages[", i, "]."), &violations));
  }
  return violations;
}

}  // namespace octavo
