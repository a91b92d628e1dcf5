#include "base/status.h"
#include "octavo/v1/worker.grpc.pb.h"
#include "server/rpc/checks.h"
#include "server/rpc/ledger.h"
#include "server/rpc/services.h"
#include "server/rpc/session.h"
#include "server/rpc/unary.h"

namespace octavo::rpc {
namespace {

absl::Status CheckInspection(const v1::ReportInspectionRequest& request) {
  RETURN_IF_ERROR(CheckWorker(request.worker()));
  if (!request.inspection_id().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "inspection_id: it is empty; write the id of the Inspect message");
}

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  explicit WorkerService(Shell* shell) : shell_(*shell) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext*) override {
    return StartSession(shell_);
  }

  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::RegisterWorkerResponse* response) override {
    return ForwardFact(shell_, "WorkerService/RegisterWorker", context, *request, response,
                       CheckRegister(*request), core::RegisterWorker{*request});
  }

  grpc::ServerUnaryReactor* ReportAttemptStarted(
      grpc::CallbackServerContext* context, const v1::ReportAttemptStartedRequest* request,
      v1::ReportAttemptStartedResponse* response) override {
    return ForwardFact(shell_, "WorkerService/ReportAttemptStarted", context, *request, response,
                       CheckLease(request->lease()), *request);
  }

  grpc::ServerUnaryReactor* ReportAttemptFinished(
      grpc::CallbackServerContext* context, const v1::ReportAttemptFinishedRequest* request,
      v1::ReportAttemptFinishedResponse* response) override {
    return ForwardFact(shell_, "WorkerService/ReportAttemptFinished", context, *request, response,
                       CheckLease(request->lease()), *request);
  }

  grpc::ServerUnaryReactor* BeginCheckpoint(grpc::CallbackServerContext* context,
                                            const v1::BeginCheckpointRequest* request,
                                            v1::BeginCheckpointResponse* response) override {
    return ForwardFact(shell_, "WorkerService/BeginCheckpoint", context, *request, response,
                       CheckBeginCheckpoint(*request), *request);
  }

  grpc::ServerUnaryReactor* CommitCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CommitCheckpointRequest* request,
                                             v1::CommitCheckpointResponse* response) override {
    return ForwardFact(shell_, "WorkerService/CommitCheckpoint", context, *request, response,
                       CheckCheckpoint(*request), *request);
  }

  grpc::ServerUnaryReactor* PushMetrics(grpc::CallbackServerContext* context,
                                        const v1::PushMetricsRequest* request,
                                        v1::PushMetricsResponse* response) override {
    auto [reactor, reply, deadline] =
        BeginUnary(shell_, "WorkerService/PushMetrics", context, response);
    if (absl::Status check = CheckMetrics(*request); !check.ok()) {
      reply.Finish(check);
      return reactor;
    }
    const loop::CoreLoop::Cost cost = {.deadline = deadline,
                                       .bytes = static_cast<int64_t>(request->ByteSizeLong())};
    shell_.loop->Decide(
        [push = *request](loop::CoreLoop::Context& state) mutable -> absl::StatusOr<core::Request> {
          RETURN_IF_ERROR(AddBaselinePoints(state, &push));
          return std::move(push);
        },
        cost, Answering(std::move(reply)));
    return reactor;
  }

  grpc::ServerUnaryReactor* PushLogs(grpc::CallbackServerContext* context,
                                     const v1::PushLogsRequest* request,
                                     v1::PushLogsResponse* response) override {
    return ForwardFact(shell_, "WorkerService/PushLogs", context, *request, response,
                       CheckLogs(*request), *request);
  }

  grpc::ServerUnaryReactor* ReportInspection(grpc::CallbackServerContext* context,
                                             const v1::ReportInspectionRequest* request,
                                             v1::ReportInspectionResponse* response) override {
    auto [reactor, reply, deadline] =
        BeginUnary(shell_, "WorkerService/ReportInspection", context, response);
    if (absl::Status check = CheckInspection(*request); !check.ok()) {
      reply.Finish(check);
      return reactor;
    }
    shell_.loop->Call([report = *request, reply = std::move(reply)](
                          absl::StatusOr<loop::CoreLoop::Context*> loop) mutable {
      if (!loop.ok()) return reply.Finish(loop.status());
      (*loop)->inspections.Report(report);
      reply.Finish(v1::ReportInspectionResponse());
    });
    return reactor;
  }

 private:
  Shell& shell_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerService(Shell* shell) {
  return std::make_unique<WorkerService>(shell);
}

}  // namespace octavo::rpc
