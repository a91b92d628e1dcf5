#include "worker/trainer/inspect.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/job_spec.h"
#include "worker/engine/engine.h"
#include "worker/trainer/run_spec.h"

namespace octavo::trainer {
namespace {

namespace fs = std::filesystem;

void Add(const std::string& field, const std::string& message, v1::ValidateJobResponse* response) {
  v1::Violation* violation = response->add_violations();
  violation->set_field(field);
  violation->set_message(message);
}

// Clears what `path`, as "data.files[1]", names in the message, or does nothing.
void Clear(absl::string_view path, google::protobuf::Message* message) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(path, absl::MaxSplits('.', 1));
  const std::string name(parts.first.substr(0, parts.first.find('[')));
  const auto* field = message->GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return;
  const auto* reflection = message->GetReflection();
  if (parts.second.empty() || field->is_repeated() ||
      field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
    reflection->ClearField(message, field);
  } else {
    Clear(parts.second, reflection->MutableMessage(message, field));
  }
}

// What can still be inspected of a spec with violations: its wrong fields are replaced by harmless
// values, about which nothing is said later. Without hope, e.g. without a stage, it stays wrong.
v1::JobSpec WithoutViolations(const v1::JobSpec& spec, const std::vector<v1::Violation>& violations,
                              int rounds = 2) {
  v1::JobSpec repaired;
  if (spec.stages_size() != 1) return repaired;
  v1::Stage* stage = repaired.add_stages();
  *stage = spec.stages(0);
  for (const v1::Violation& violation : violations) {
    absl::string_view path = violation.field();
    if (absl::ConsumePrefix(&path, "stages[0].")) Clear(path, stage);
  }
  repaired.set_name("inspected");
  repaired.set_output_folder("/");
  stage->set_kind("cpt");
  if (stage->steps() == 0) stage->set_steps((int64_t{1} << 31) - 1);
  if (stage->optimizer().learning_rate() == 0) stage->mutable_optimizer()->set_learning_rate(1e-4);
  if (stage->data().sequence_length() == 0) {
    stage->mutable_data()->set_sequence_length(128);
    stage->clear_evaluation();  // how long a prompt may be depends on it
  }
  FillDefaults(&repaired);
  // A wrong field may have hidden that another is wrong.
  const std::vector<v1::Violation> left = CheckJobSpec(repaired);
  return left.empty() || rounds == 0 ? repaired : WithoutViolations(repaired, left, rounds - 1);
}

// The nearest part of the path that is there must be a folder in which this process may make more.
void CheckOutputFolder(const std::string& folder, v1::ValidateJobResponse* response) {
  if (!absl::StartsWith(folder, "/")) return;  // a violation of the spec
  fs::path part = folder;
  std::error_code error;
  while (!fs::exists(part, error) && part.has_relative_path()) part = part.parent_path();
  if (!fs::is_directory(part, error)) {
    Add("output_folder", absl::StrCat("\"", part.string(), "\" is a file; write a folder"),
        response);
  } else if (access(part.c_str(), W_OK | X_OK) != 0) {
    Add("output_folder",
        absl::StrCat("the worker cannot write into \"", part.string(), "\" (", strerror(errno),
                     "); write a folder that it may write into"),
        response);
  }
}

// Where the job would run on this machine. A backend that does not open here says so in the run.
engine::Place PlaceOfJob(const std::string& device_kind) {
  const std::string name = device_kind == "gpu" ? "cuda" : "cpu";
  engine::Place place;
  place.backend = name;
  const auto backend = kernels::OpenBackend(name, {});
  if (backend.ok()) place.machine = (*backend)->Describe().machine;
  return place;
}

void AddPlan(const engine::Inspection& inspection, v1::Plan* plan) {
  plan->set_parameters(inspection.parameters);
  const engine::MemoryEstimate& memory = inspection.memory;
  plan->set_weights_bytes(memory.weights);
  plan->set_optimizer_bytes(memory.optimizer);
  plan->set_gradients_bytes(memory.gradients);
  plan->set_activations_bytes(memory.activations);
  plan->set_workspaces_bytes(memory.workspaces);
  plan->set_backend_bytes(memory.backend);
  plan->set_corpus_bytes(memory.corpus);
  plan->set_program_bytes(memory.program);
  plan->set_total_bytes(memory.total());
  plan->set_train_tokens(inspection.train_tokens);
  plan->set_tokens_per_step(inspection.tokens_per_step);
  plan->set_epochs(inspection.epochs);
  plan->set_checkpoint_bytes(inspection.checkpoint_bytes);
}

}  // namespace

v1::ValidateJobResponse InspectJob(v1::JobSpec spec) {
  v1::ValidateJobResponse response;
  FillDefaults(&spec);
  const std::vector<v1::Violation> violations = CheckJobSpec(spec);
  std::set<std::string> known;
  for (const v1::Violation& violation : violations) {
    *response.add_violations() = violation;
    known.insert(violation.field());
  }
  CheckOutputFolder(spec.output_folder(), &response);
  const absl::StatusOr<engine::RunSpec> run =
      MakeRunSpec(violations.empty() ? spec : WithoutViolations(spec, violations));
  if (!run.ok()) return response;  // its violations are listed already

  const engine::Place place = PlaceOfJob(spec.resources().device_kind());
  engine::Inspection inspection;
  try {
    inspection = engine::Inspect(*run, place);
  } catch (const std::exception& error) {
    Add("stages[0]", absl::StrCat("reading the job's inputs: ", error.what()), &response);
    return response;
  }
  for (const engine::InspectionProblem& problem : inspection.problems) {
    const std::string field = absl::StrCat("stages[0].", problem.field);
    if (known.count(field) == 0) Add(field, problem.message, &response);
  }
  for (const std::string& warning : inspection.warnings) response.add_warnings(warning);
  if (violations.empty()) AddPlan(inspection, response.mutable_plan());
  return response;
}

}  // namespace octavo::trainer
