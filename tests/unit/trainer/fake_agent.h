// A TrainerService on a Unix socket that grants everything, unless told otherwise, and remembers
// it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octavo/v1/trainer.grpc.pb.h"

namespace octavo::trainer {

// The one trainer of a test calls it, one call after another; the test looks when it is done.
class FakeAgent final : public v1::TrainerService::Service {
 public:
  explicit FakeAgent(const std::string& socket);
  ~FakeAgent() override;
  const std::string& address() const { return address_; }

  v1::Assignment assignment;
  grpc::Status on_commit;                     // its answer to a commit
  int64_t refuse_begin_of_step = 0;           // 0: of none
  std::vector<std::string> obsolete_folders;  // and what it wants to have removed

  std::vector<std::string> calls;  // "metrics 1", "begin 1", "commit 1", "finish"
  std::vector<v1::MetricPoint> points;
  std::vector<v1::Checkpoint> committed;
  std::optional<v1::FinishRequest> finished;

 private:
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

  const std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace octavo::trainer
