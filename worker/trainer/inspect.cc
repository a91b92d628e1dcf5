#include "worker/trainer/inspect.h"

#include "absl/strings/str_cat.h"
#include "proto/support/job_spec.h"
#include "worker/engine/engine.h"
#include "worker/trainer/run_plan.h"

namespace octavo::trainer {

v1::ValidateJobResponse InspectJob(v1::JobSpec spec) {
  v1::ValidateJobResponse response;
  FillDefaults(&spec);
  for (const v1::Violation& violation : CheckJobSpec(spec)) *response.add_violations() = violation;
  const absl::StatusOr<engine::RunPlan> plan = MakeRunPlan(spec);
  if (!plan.ok()) return response;  // its violations are listed already

  const engine::Inspection inspection = engine::Inspect(*plan);
  for (const engine::InspectionProblem& problem : inspection.problems) {
    v1::Violation* violation = response.add_violations();
    violation->set_field(absl::StrCat("stages[0].", problem.field));
    violation->set_message(problem.message);
  }
  for (const std::string& warning : inspection.warnings) response.add_warnings(warning);
  v1::Plan* answer = response.mutable_plan();
  answer->set_parameters(inspection.parameters);
  answer->set_weights_bytes(inspection.weights_bytes);
  answer->set_optimizer_bytes(inspection.optimizer_bytes);
  answer->set_gradients_bytes(inspection.gradients_bytes);
  answer->set_activations_bytes(inspection.activations_bytes);
  answer->set_total_bytes(inspection.total_bytes);
  answer->set_train_tokens(inspection.train_tokens);
  answer->set_tokens_per_step(inspection.tokens_per_step);
  answer->set_epochs(inspection.epochs);
  answer->set_checkpoint_bytes(inspection.checkpoint_bytes);
  return response;
}

}  // namespace octavo::trainer
