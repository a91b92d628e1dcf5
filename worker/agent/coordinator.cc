#include "worker/agent/coordinator.h"

#include "base/status.h"

namespace octavo::agent {

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

Coordinator::Coordinator(std::shared_ptr<grpc::Channel> channel, absl::Duration deadline)
    : stub_(v1::WorkerService::NewStub(std::move(channel))), deadline_(deadline) {}

// A time span counts from when the call starts.
void Coordinator::Bound(grpc::ClientContext* context) const {
  context->set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(deadline_), GPR_TIMESPAN));
}

absl::StatusOr<v1::CommitCheckpointResponse> Coordinator::Send(const Fact& fact) {
  grpc::ClientContext context;
  Bound(&context);
  v1::CommitCheckpointResponse answer;
  struct Call {
    v1::WorkerService::Stub& stub;
    grpc::ClientContext* context;
    v1::CommitCheckpointResponse* answer;
    grpc::Status operator()(const v1::ReportAttemptStartedRequest& request) const {
      v1::ReportAttemptStartedResponse response;
      return stub.ReportAttemptStarted(context, request, &response);
    }
    grpc::Status operator()(const v1::ReportAttemptFinishedRequest& request) const {
      v1::ReportAttemptFinishedResponse response;
      return stub.ReportAttemptFinished(context, request, &response);
    }
    grpc::Status operator()(const v1::BeginCheckpointRequest& request) const {
      v1::BeginCheckpointResponse response;
      return stub.BeginCheckpoint(context, request, &response);
    }
    grpc::Status operator()(const v1::CommitCheckpointRequest& request) const {
      return stub.CommitCheckpoint(context, request, answer);
    }
    grpc::Status operator()(const v1::PushMetricsRequest& request) const {
      v1::PushMetricsResponse response;
      return stub.PushMetrics(context, request, &response);
    }
    grpc::Status operator()(const v1::PushLogsRequest& request) const {
      v1::PushLogsResponse response;
      return stub.PushLogs(context, request, &response);
    }
  };
  RETURN_IF_ERROR(FromGrpc(std::visit(Call{*stub_, &context, &answer}, fact)));
  return answer;
}

absl::StatusOr<v1::RegisterWorkerResponse> Coordinator::Register(
    const v1::RegisterWorkerRequest& request) {
  grpc::ClientContext context;
  Bound(&context);
  v1::RegisterWorkerResponse response;
  RETURN_IF_ERROR(FromGrpc(stub_->RegisterWorker(&context, request, &response)));
  return response;
}

absl::Status Coordinator::ReportInspection(const v1::ReportInspectionRequest& request) {
  grpc::ClientContext context;
  Bound(&context);
  v1::ReportInspectionResponse response;
  return FromGrpc(stub_->ReportInspection(&context, request, &response));
}

std::unique_ptr<Coordinator::Stream> Coordinator::OpenSession(grpc::ClientContext* context) {
  return stub_->Session(context);
}

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC's own reconnect delay grows to two minutes; a lease is seconds long.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace octavo::agent
