// gRPC calls to the coordinator, with what every one of them needs.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octavo/v1/worker.grpc.pb.h"
#include "worker/agent/fact.h"

namespace octavo::agent {

absl::Status FromGrpc(const grpc::Status& status);

// Thread-safe: a stub is.
class Coordinator final : public FactSender {
 public:
  // `deadline` of one unary call.
  Coordinator(std::shared_ptr<grpc::Channel> channel, absl::Duration deadline);

  absl::StatusOr<v1::CommitCheckpointResponse> Send(const Fact& fact) override;
  absl::StatusOr<v1::RegisterWorkerResponse> Register(const v1::RegisterWorkerRequest& request);
  absl::Status ReportInspection(const v1::ReportInspectionRequest& request);
  using Stream = grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>;
  std::unique_ptr<Stream> OpenSession(grpc::ClientContext* context);

 private:
  void Bound(grpc::ClientContext* context) const;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const absl::Duration deadline_;
};

// A channel that notices a silent peer within half a minute.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address);

}  // namespace octavo::agent
