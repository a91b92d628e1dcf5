// A TrainerService on a Unix socket that grants everything, unless told otherwise, and remembers
// it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "octavo/v1/trainer.grpc.pb.h"

namespace octavo::trainer {

// What it is to do is set before the run; what it has heard may be asked at any time.
class FakeAgent final : public v1::TrainerService::Service {
 public:
  explicit FakeAgent(const std::string& socket);
  ~FakeAgent() override;
  const std::string& address() const { return address_; }

  v1::Assignment assignment;
  grpc::Status on_commit;                     // its answer to a commit
  int64_t refuse_commit_of_step = 0;          // 0: of none
  std::vector<std::string> obsolete_folders;  // and what it wants to have removed
  // Called before the call is answered; false once the trainer has given the call up.
  std::function<bool(const grpc::ServerContext&, int64_t step)> hold_commit;
  std::function<bool(const grpc::ServerContext&, int64_t step)> hold_metrics;

  // "metrics 1", "begin 1", "commit 1", "finish"
  std::vector<std::string> calls() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::string> calls_but_metrics() const ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetCalls() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::Checkpoint> committed() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<v1::FinishRequest> finished() const ABSL_LOCKS_EXCLUDED(mutex_);

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

  void Note(const std::string& call) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string address_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Checkpoint> committed_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::FinishRequest> finished_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;  // last: its threads call the above
};

}  // namespace octavo::trainer
