#include "worker/trainer/agent_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::trainer {
namespace {

absl::Status ToStatus(const grpc::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

}  // namespace

// Begin, BeginCheckpoint and Finish are answered by the agent alone, so a deadline bounds them.
// Metrics may wait for room in the agent, and a commit for a coordinator that restarts: they have
// no deadline and end when the agent ends them, the connection breaks or the link is abandoned.
class AgentLink::Call {
 public:
  explicit Call(AgentLink* link) : link_(*link) {
    absl::MutexLock lock(&link_.mutex_);
    if (link_.abandoned_) context_.TryCancel();
    link_.under_way_.insert(&context_);
  }
  ~Call() {
    absl::MutexLock lock(&link_.mutex_);
    link_.under_way_.erase(&context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  grpc::ClientContext* context() { return &context_; }
  grpc::ClientContext* BoundedContext() {
    context_.set_wait_for_ready(true);
    context_.set_deadline(
        gpr_time_from_millis(absl::ToInt64Milliseconds(link_.patience_), GPR_TIMESPAN));
    return &context_;
  }

 private:
  AgentLink& link_;
  grpc::ClientContext context_;
};

AgentLink::AgentLink(const std::string& address, absl::Duration patience)
    : stub_(v1::TrainerService::NewStub(
          grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
      patience_(patience) {}

absl::StatusOr<v1::Assignment> AgentLink::Begin() {
  v1::BeginRequest request;
  request.set_process_id(getpid());
  v1::Assignment assignment;
  Call call(this);
  RETURN_IF_ERROR(ToStatus(stub_->Begin(call.BoundedContext(), request, &assignment),
                           "asking the agent for the job"));
  return assignment;
}

absl::Status AgentLink::ReportMetrics(const std::vector<v1::MetricPoint>& points) {
  v1::ReportMetricsRequest request;
  request.mutable_points()->Assign(points.begin(), points.end());
  v1::ReportMetricsResponse response;
  Call call(this);
  return ToStatus(stub_->ReportMetrics(call.context(), request, &response), "reporting metrics");
}

absl::Status AgentLink::BeginCheckpoint(int64_t step, const std::string& folder) {
  v1::BeginTrainerCheckpointRequest request;
  request.set_step(step);
  request.set_folder(folder);
  v1::BeginTrainerCheckpointResponse response;
  Call call(this);
  return ToStatus(stub_->BeginTrainerCheckpoint(call.BoundedContext(), request, &response),
                  absl::StrCat("announcing checkpoint ", folder));
}

absl::StatusOr<std::vector<std::string>> AgentLink::CommitCheckpoint(
    const v1::Checkpoint& checkpoint) {
  v1::CommitTrainerCheckpointRequest request;
  *request.mutable_checkpoint() = checkpoint;
  v1::CommitTrainerCheckpointResponse response;
  Call call(this);
  RETURN_IF_ERROR(ToStatus(stub_->CommitTrainerCheckpoint(call.context(), request, &response),
                           absl::StrCat("committing checkpoint ", checkpoint.folder())));
  return std::vector<std::string>(response.obsolete_folders().begin(),
                                  response.obsolete_folders().end());
}

absl::Status AgentLink::Finish(const v1::FinishRequest& request) {
  v1::FinishResponse response;
  Call call(this);
  return ToStatus(stub_->Finish(call.BoundedContext(), request, &response), "reporting the end");
}

void AgentLink::Abandon() {
  absl::MutexLock lock(&mutex_);
  abandoned_ = true;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
}

}  // namespace octavo::trainer
