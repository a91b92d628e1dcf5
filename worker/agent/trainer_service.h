// The agent's end of one attempt's Unix socket.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "octavo/v1/trainer.grpc.pb.h"
#include "worker/agent/outbox.h"

namespace grpc {
class Server;
}

namespace octavo::agent {

// Relays to the outbox. Handlers block: the one trainer has a call or two open at a time.
class TrainerService final : public v1::TrainerService::Service {
 public:
  // `outbox` outlives the service.
  TrainerService(v1::Assignment assignment, Outbox* outbox);

  grpc::Status Begin(grpc::ServerContext*, const v1::BeginRequest*, v1::Assignment*) override;
  grpc::Status ReportMetrics(grpc::ServerContext*, const v1::ReportMetricsRequest*,
                             v1::ReportMetricsResponse*) override;
  grpc::Status BeginTrainerCheckpoint(grpc::ServerContext*,
                                      const v1::BeginTrainerCheckpointRequest*,
                                      v1::BeginTrainerCheckpointResponse*) override;
  grpc::Status CommitTrainerCheckpoint(grpc::ServerContext*,
                                       const v1::CommitTrainerCheckpointRequest*,
                                       v1::CommitTrainerCheckpointResponse*) override;
  grpc::Status Finish(grpc::ServerContext*, const v1::FinishRequest*, v1::FinishResponse*) override;

  // What the trainer reported as its end, if it did.
  std::optional<v1::FinishRequest> finished() const;

 private:
  const v1::Assignment assignment_;
  Outbox* const outbox_;
  mutable absl::Mutex mutex_;
  std::optional<v1::FinishRequest> finished_ ABSL_GUARDED_BY(mutex_);
};

// A gRPC server with one service on a Unix socket. Destruction cancels what is open and removes the
// socket.
class SocketServer {
 public:
  // `service` outlives the server.
  static absl::StatusOr<std::unique_ptr<SocketServer>> Start(const std::string& path,
                                                             grpc::Service* service);
  ~SocketServer();

 private:
  SocketServer(std::string path, std::unique_ptr<grpc::Server> server);
  const std::string path_;
  const std::unique_ptr<grpc::Server> server_;
};

}  // namespace octavo::agent
