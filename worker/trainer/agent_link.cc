#include "worker/trainer/agent_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::trainer {
namespace {

// Begin and Finish are answered by the agent alone, so a deadline bounds them. Metrics may wait for
// room in the agent, and checkpoints for a coordinator that restarts: they have no deadline and end
// when the agent ends them or the connection breaks.
void Bound(grpc::ClientContext* context, absl::Duration patience) {
  context->set_wait_for_ready(true);
  context->set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(patience), GPR_TIMESPAN));
}

absl::Status ToStatus(const grpc::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

}  // namespace

AgentLink::AgentLink(const std::string& address, absl::Duration patience)
    : stub_(v1::TrainerService::NewStub(
          grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
      patience_(patience) {}

absl::StatusOr<v1::Assignment> AgentLink::Begin() {
  v1::BeginRequest request;
  request.set_process_id(getpid());
  v1::Assignment assignment;
  grpc::ClientContext context;
  Bound(&context, patience_);
  RETURN_IF_ERROR(
      ToStatus(stub_->Begin(&context, request, &assignment), "asking the agent for the job"));
  return assignment;
}

absl::Status AgentLink::ReportMetrics(const std::vector<v1::MetricPoint>& points) {
  v1::ReportMetricsRequest request;
  request.mutable_points()->Assign(points.begin(), points.end());
  v1::ReportMetricsResponse response;
  grpc::ClientContext context;
  return ToStatus(stub_->ReportMetrics(&context, request, &response), "reporting metrics");
}

absl::Status AgentLink::BeginCheckpoint(int64_t step, const std::string& folder) {
  v1::BeginTrainerCheckpointRequest request;
  request.set_step(step);
  request.set_folder(folder);
  v1::BeginTrainerCheckpointResponse response;
  grpc::ClientContext context;
  return ToStatus(stub_->BeginTrainerCheckpoint(&context, request, &response),
                  absl::StrCat("asking leave for checkpoint ", folder));
}

absl::StatusOr<std::vector<std::string>> AgentLink::CommitCheckpoint(
    const v1::Checkpoint& checkpoint) {
  v1::CommitTrainerCheckpointRequest request;
  *request.mutable_checkpoint() = checkpoint;
  v1::CommitTrainerCheckpointResponse response;
  grpc::ClientContext context;
  RETURN_IF_ERROR(ToStatus(stub_->CommitTrainerCheckpoint(&context, request, &response),
                           absl::StrCat("committing checkpoint ", checkpoint.folder())));
  return std::vector<std::string>(response.obsolete_folders().begin(),
                                  response.obsolete_folders().end());
}

absl::Status AgentLink::Finish(const v1::FinishRequest& request) {
  v1::FinishResponse response;
  grpc::ClientContext context;
  Bound(&context, patience_);
  return ToStatus(stub_->Finish(&context, request, &response), "reporting the end");
}

}  // namespace octavo::trainer
