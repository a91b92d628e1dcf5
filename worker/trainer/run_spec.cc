#include "worker/trainer/run_spec.h"

#include "base/status.h"
#include "proto/support/job_spec.h"
#include "worker/trainer/recipe_spec.h"

namespace octavo::trainer {
namespace {

engine::DataSpec MakeDataSpec(const v1::DataSource& data) {
  return {
      .files = {data.files().begin(), data.files().end()},
      .text_field = data.text_field(),
      .tokenizer = data.tokenizer() == "byte" ? engine::DataSpec::TokenizerKind::kByte
                                              : engine::DataSpec::TokenizerKind::kFolder,
      .sequence_length = data.sequence_length(),
      .isolate_documents = data.isolate_documents(),
      .holdout_files = {data.holdout_files().begin(), data.holdout_files().end()},
      .holdout_fraction = data.holdout_fraction(),
      .skip_bad_rows = data.on_bad_row() == "skip",
      .document_separator = data.document_separator(),
  };
}

engine::OptimizerSpec MakeOptimizerSpec(const v1::Optimizer& optimizer) {
  return {
      .learning_rate = optimizer.learning_rate(),
      .min_learning_rate = optimizer.min_learning_rate(),
      .beta1 = optimizer.beta1(),
      .beta2 = optimizer.beta2(),
      .epsilon = optimizer.epsilon(),
      .weight_decay = optimizer.weight_decay(),
      .clip_norm = optimizer.clip_norm(),
  };
}

engine::ScheduleSpec MakeScheduleSpec(const v1::Schedule& schedule) {
  using Kind = engine::ScheduleSpec::Kind;
  return {
      .kind = schedule.kind() == "cosine"     ? Kind::kCosine
              : schedule.kind() == "constant" ? Kind::kConstant
                                              : Kind::kWsd,
      .warmup_steps = schedule.warmup_steps(),
      .decay_steps = schedule.decay_steps(),
  };
}

engine::EvaluationSpec MakeEvaluationSpec(const v1::Evaluation& evaluation) {
  return {
      .holdout_tokens = evaluation.holdout_tokens(),
      .exact_match_file = evaluation.exact_match_file(),
      .exact_match_limit = evaluation.exact_match_limit(),
      .exact_match_max_new_tokens = evaluation.exact_match_max_new_tokens(),
  };
}

}  // namespace

absl::StatusOr<engine::RunSpec> MakeRunSpec(const v1::JobSpec& spec) {
  if (const std::vector<v1::Violation> violations = CheckJobSpec(spec); !violations.empty()) {
    return absl::InvalidArgumentError(JoinViolations(violations));
  }
  const v1::Stage& stage = spec.stages(0);
  using Initialisation = engine::ModelSpec::Initialisation;
  return engine::RunSpec{
      .model = {.folder = stage.model().folder(),
                .initialisation = stage.model().initialisation() == "random"
                                      ? Initialisation::kRandom
                                      : Initialisation::kWeights},
      .extend_checkpoint = stage.extend_checkpoint(),
      .data = MakeDataSpec(stage.data()),
      .recipe = MakeRecipeSpec(stage.recipe()),
      .optimizer = MakeOptimizerSpec(stage.optimizer()),
      .schedule = MakeScheduleSpec(stage.schedule()),
      .evaluation = MakeEvaluationSpec(stage.evaluation()),
      .micro_batch = stage.batch().micro_batch(),
      .gradient_accumulation = stage.batch().gradient_accumulation(),
      .steps = stage.steps(),
      .seed = stage.seed(),
      .probe_every_steps = stage.divergence().probe_every_steps(),
  };
}

}  // namespace octavo::trainer
