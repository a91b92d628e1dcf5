// The trainer's side of TrainerService: blocking calls that ride out an agent that is busy.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "octavo/v1/trainer.grpc.pb.h"

namespace octavo::trainer {

// Thread-safe.
class AgentLink {
 public:
  // `address` as gRPC takes it, e.g. "unix:/run/octavo/job-a.1.sock". `patience`: how long an agent
  // may be unreachable before a call gives up with UNAVAILABLE; without an agent there is nobody to
  // train for.
  AgentLink(const std::string& address, absl::Duration patience);

  absl::StatusOr<v1::Assignment> Begin();
  absl::Status ReportMetrics(const std::vector<v1::MetricPoint>& points);
  absl::Status BeginCheckpoint(int64_t step, const std::string& folder);
  // Waits for the coordinator, for as long as the agent keeps the call open.
  absl::StatusOr<std::vector<std::string>> CommitCheckpoint(const v1::Checkpoint& checkpoint);
  absl::Status Finish(const v1::FinishRequest& request);
  // Ends the calls that are under way, and every later one at once, with CANCELLED.
  void Abandon() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;
  const std::unique_ptr<v1::TrainerService::Stub> stub_;
  const absl::Duration patience_;
  absl::Mutex mutex_;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::trainer
