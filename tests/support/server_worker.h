// A worker's side of WorkerService, which does what a test says and nothing by itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/server_coordinator.h"

namespace octavo::testing_support {

class ScriptedWorker {
 public:
  explicit ScriptedWorker(Stubs& stubs, const std::string& id = "worker-a",
                          const std::string& incarnation = "00000000000000aa")
      : stubs_(stubs) {
    identity.set_worker_id(id);
    identity.set_incarnation(incarnation);
  }
  ~ScriptedWorker() {
    if (stream_ != nullptr) EndSession();
  }

  grpc::Status Register(int64_t memory_bytes = int64_t{64} << 30,
                        const std::vector<v1::LeaseIdentity>& running = {}) {
    v1::RegisterWorkerRequest request;
    *request.mutable_worker() = identity;
    request.set_address("host-a");
    v1::Device& device = *request.add_devices();
    device.set_kind("cpu");
    device.set_memory_bytes(memory_bytes);
    for (const auto& lease : running) *request.add_running() = lease;
    return Call(&v1::WorkerService::Stub::RegisterWorker, request, &registered);
  }

  // One heartbeat and every message up to its acknowledgement, merged. Empty when the session
  // ended.
  v1::SessionResponse Beat(const std::vector<v1::LeaseIdentity>& running = {}) {
    if (stream_ == nullptr) {
      context_ = std::make_unique<CallContext>();
      stream_ = stubs_.workers->Session(context_.get());
    }
    v1::SessionRequest request;
    *request.mutable_worker() = identity;
    request.set_sequence(++sequence_);
    for (const auto& lease : running) *request.add_running() = lease;
    v1::SessionResponse all;
    if (!stream_->Write(request)) return all;
    v1::SessionResponse message;
    while (all.acknowledged_sequence() != sequence_ && stream_->Read(&message)) {
      all.MergeFrom(message);
    }
    return all;
  }

  grpc::Status EndSession() {
    context_->TryCancel();
    const grpc::Status status = stream_->Finish();
    stream_ = nullptr;
    return status;
  }
  // Of a session that the coordinator ended.
  grpc::Status SessionStatus() {
    v1::SessionResponse message;
    while (stream_->Read(&message)) {
    }
    const grpc::Status status = stream_->Finish();
    stream_ = nullptr;
    return status;
  }
  // The next message of the coordinator.
  v1::SessionResponse Read() {
    v1::SessionResponse message;
    stream_->Read(&message);
    return message;
  }

  // Beats until a job is assigned. The coordinator places on its tick, so this takes a few.
  v1::Assignment AwaitAssignment() {
    while (true) {
      const v1::SessionResponse response = Beat();
      if (response.assignments_size() > 0) return response.assignments(0);
      if (response.acknowledged_sequence() == 0) return {};
    }
  }

  grpc::Status Start(const v1::LeaseIdentity& lease) {
    v1::ReportAttemptStartedRequest request;
    *request.mutable_lease() = lease;
    v1::ReportAttemptStartedResponse response;
    return Call(&v1::WorkerService::Stub::ReportAttemptStarted, request, &response);
  }
  grpc::Status Push(const v1::LeaseIdentity& lease, const std::vector<v1::MetricPoint>& points) {
    v1::PushMetricsRequest request;
    *request.mutable_lease() = lease;
    for (const auto& point : points) *request.add_points() = point;
    v1::PushMetricsResponse response;
    return Call(&v1::WorkerService::Stub::PushMetrics, request, &response);
  }
  grpc::Status Log(const v1::LeaseIdentity& lease, int64_t sequence,
                   const std::vector<std::string>& texts) {
    v1::PushLogsRequest request;
    *request.mutable_lease() = lease;
    request.set_sequence(sequence);
    for (const auto& text : texts) request.add_lines()->set_text(text);
    v1::PushLogsResponse response;
    return Call(&v1::WorkerService::Stub::PushLogs, request, &response);
  }
  grpc::Status Succeed(const v1::LeaseIdentity& lease) {
    v1::ReportAttemptFinishedRequest request;
    *request.mutable_lease() = lease;
    request.mutable_report()->set_steps(10);
    v1::ReportAttemptFinishedResponse response;
    return Call(&v1::WorkerService::Stub::ReportAttemptFinished, request, &response);
  }

  v1::WorkerIdentity identity;
  v1::RegisterWorkerResponse registered;  // answer to the last Register

 private:
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::WorkerService::Stub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                    const Request& request, Response* response) {
    CallContext context;
    return (stubs_.workers.get()->*method)(&context, request, response);
  }

  Stubs& stubs_;
  std::unique_ptr<CallContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  int64_t sequence_ = 0;
};

}  // namespace octavo::testing_support
