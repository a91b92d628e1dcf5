// What an attempt tells the coordinator, and how the answer is to be taken.
#pragma once

#include <variant>

#include "absl/status/statusor.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::agent {

using Fact = std::variant<v1::ReportAttemptStartedRequest, v1::BeginCheckpointRequest,
                          v1::CommitCheckpointRequest, v1::PushMetricsRequest, v1::PushLogsRequest,
                          v1::ReportAttemptFinishedRequest>;

// The way to the coordinator. Thread-safe.
class FactSender {
 public:
  virtual ~FactSender() = default;
  // One try, bounded by the sender's own deadline. The answer is empty but for CommitCheckpoint.
  virtual absl::StatusOr<v1::CommitCheckpointResponse> Send(const Fact& fact) = 0;
};

enum class Verdict {
  kDelivered,
  kRetry,    // the coordinator is away, busy or was interrupted: say it again
  kRefused,  // saying it again will not help; the attempt goes on
  kFenced,   // the lease is gone for good: kill the trainer, say nothing more
};
Verdict VerdictOf(const absl::Status& status);

}  // namespace octavo::agent
