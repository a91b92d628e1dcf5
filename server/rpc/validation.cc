#include "server/rpc/validation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/admission.h"

namespace octavo::rpc {
namespace {

// A call must be answered before its deadline, not at it.
constexpr absl::Duration kAnswerMargin = absl::Milliseconds(500);

// The worker checks the fields as well: what is known already is not said twice.
template <typename Violations>
void AddViolations(const Violations& violations, v1::ValidateJobResponse* response) {
  for (const v1::Violation& violation : violations) {
    const bool known = std::any_of(response->violations().begin(), response->violations().end(),
                                   [&](const v1::Violation& other) {
                                     return other.field() == violation.field() &&
                                            other.message() == violation.message();
                                   });
    if (!known) *response->add_violations() = violation;
  }
}

// A spec that is too large, or has not one stage, has nothing that could be looked at.
bool CanBeInspected(const v1::ValidateJobResponse& response) {
  return response.spec().stages_size() == 1 &&
         std::none_of(response.violations().begin(), response.violations().end(),
                      [](const v1::Violation& violation) { return violation.field().empty(); });
}

std::vector<v1::Worker> AllWorkers(const core::Core& core) {
  return core.ListWorkers("", core.fleet().size());
}

// A connected worker with an open session and a device of the kind, one without work before others;
// empty without.
std::string ChooseInspector(const loop::CoreLoop::Context& context, const std::string& kind) {
  std::string busy;
  for (const v1::Worker& worker : AllWorkers(context.core)) {
    const bool suits = std::any_of(worker.devices().begin(), worker.devices().end(),
                                   [&](const v1::Device& device) { return device.kind() == kind; });
    if (!suits || worker.state() != v1::WORKER_STATE_CONNECTED ||
        !context.sessions.Find(worker.id()))
      continue;
    if (worker.attempt_ids().empty()) return worker.id();
    if (busy.empty()) busy = worker.id();
  }
  return busy;
}

// Takes what the worker found; the fleet is checked with its plan, which knows the model.
void AddReport(const v1::ReportInspectionRequest& report, v1::ValidateJobResponse* response) {
  AddViolations(report.violations(), response);
  for (const std::string& warning : report.warnings()) response->add_warnings(warning);
  if (report.has_plan()) *response->mutable_plan() = report.plan();
}

struct Validation {
  v1::ValidateJobResponse response;
  bool fields_are_right = false;  // as far as no file is opened; else there is no plan
  int64_t planned_here = 0;
  absl::Duration deadline;
  Reply<v1::ValidateJobResponse> reply;
};

void CheckMemory(const std::vector<v1::Worker>& workers, Validation* validation) {
  if (!validation->fields_are_right) return;
  v1::ValidateJobResponse& response = validation->response;
  int64_t bytes = response.spec().resources().memory_bytes();
  if (bytes == 0) {
    bytes = response.has_plan() ? response.plan().total_bytes() : validation->planned_here;
  }
  AddViolations(CheckFleet(response.spec(), bytes, workers), &response);
}

// Runs on the loop's thread.
void Inspect(loop::CoreLoop::Context& context, Validation validation) {
  v1::ValidateJobResponse& response = validation.response;
  std::vector<v1::Worker> workers = AllWorkers(context.core);
  const std::string inspector = ChooseInspector(context, response.spec().resources().device_kind());
  if (inspector.empty()) {
    response.add_warnings("the inputs were not inspected: no worker with a " +
                          response.spec().resources().device_kind() + " device is connected");
    CheckMemory(workers, &validation);
    return validation.reply.Finish(std::move(response));
  }
  const v1::WorkerIdentity worker = *context.sessions.Find(inspector);
  const v1::JobSpec spec = response.spec();
  const absl::Duration deadline = validation.deadline;
  loop::Inspections::Waiting waiting(
      [validation = std::move(validation), workers = std::move(workers),
       inspector](absl::StatusOr<v1::ReportInspectionRequest> report) mutable {
        if (report.ok()) {
          AddReport(*report, &validation.response);
        } else {
          validation.response.add_warnings(absl::StrCat("the inputs were not inspected by worker ",
                                                        inspector, ": ",
                                                        report.status().message()));
        }
        CheckMemory(workers, &validation);
        validation.reply.Finish(std::move(validation.response));
      });
  const std::string id = context.inspections.Begin(deadline, std::move(waiting));
  if (id.empty()) return;
  v1::SessionResponse message;
  v1::Inspect& inspect = *message.add_inspections();
  inspect.set_inspection_id(id);
  *inspect.mutable_spec() = spec;
  context.sessions.Send(worker, std::move(message));
}

}  // namespace

void Validate(Shell& shell, const v1::JobSpec& spec, absl::Duration deadline,
              Reply<v1::ValidateJobResponse> reply) {
  const absl::Duration patience = shell.clock->Monotonic() + shell.limits.inspection_timeout;
  Validation validation = {.response = {},
                           .deadline = std::min(patience, deadline - kAnswerMargin),
                           .reply = std::move(reply)};
  *validation.response.mutable_spec() = spec;
  AddViolations(CompleteSpec(validation.response.mutable_spec()), &validation.response);
  if (!CanBeInspected(validation.response)) {
    return validation.reply.Finish(std::move(validation.response));
  }
  validation.fields_are_right = validation.response.violations().empty();
  shell.pool->Post([loop = shell.loop, validation = std::move(validation)](
                       absl::StatusOr<storage::StoreReader*> reader) mutable {
    if (!reader.ok()) return validation.reply.Finish(reader.status());
    if (validation.fields_are_right) {
      validation.planned_here = EstimateJobMemory(validation.response.spec());
    }
    loop->Call([validation = std::move(validation)](
                   absl::StatusOr<loop::CoreLoop::Context*> context) mutable {
      if (!context.ok()) return validation.reply.Finish(context.status());
      AddViolations(CheckBaseline(validation.response.spec(), (*context)->core),
                    &validation.response);
      Inspect(**context, std::move(validation));
    });
  });
}

}  // namespace octavo::rpc
