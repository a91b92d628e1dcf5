// The trainer's side of TrainerService: blocking calls that ride out an agent that is busy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octavo/v1/trainer.grpc.pb.h"

namespace octavo::trainer {

// One thread uses it at a time.
class AgentLink {
 public:
  // `address` as gRPC takes it, e.g. "unix:/run/octavo/job-a.1.sock". `patience`: how long an agent
  // may be unreachable before a call gives up with UNAVAILABLE; without an agent there is nobody to
  // train for.
  AgentLink(const std::string& address, absl::Duration patience);

  absl::StatusOr<v1::Assignment> Begin();
  absl::Status ReportMetrics(const std::vector<v1::MetricPoint>& points);
  // Both wait for the coordinator, for as long as the agent keeps the call open.
  absl::Status BeginCheckpoint(int64_t step, const std::string& folder);
  absl::StatusOr<std::vector<std::string>> CommitCheckpoint(const v1::Checkpoint& checkpoint);
  absl::Status Finish(const v1::FinishRequest& request);

 private:
  std::unique_ptr<v1::TrainerService::Stub> stub_;
  absl::Duration patience_;
};

}  // namespace octavo::trainer
