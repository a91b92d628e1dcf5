// What a request must satisfy before it may reach the core. Pure; INVALID_ARGUMENT names the field,
// its value and what is allowed.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/metric.pb.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::rpc {

inline constexpr int64_t kMaxSpecBytes = 256 << 10;
inline constexpr int64_t kMaxMetricBatchBytes = 64 << 10;
inline constexpr int64_t kMaxLogBatchBytes = 256 << 10;
inline constexpr int64_t kMaxLogLineBytes = 8 << 10;

absl::Status CheckRequestId(const std::string& request_id);
absl::Status CheckJobId(const std::string& job_id);
absl::Status CheckWorker(const v1::WorkerIdentity& worker);
absl::Status CheckLease(const v1::LeaseIdentity& lease);
absl::Status CheckRegister(const v1::RegisterWorkerRequest& request);
absl::Status CheckHeartbeat(const v1::SessionRequest& request);
absl::Status CheckCheckpoint(const v1::CommitCheckpointRequest& request);
absl::Status CheckBeginCheckpoint(const v1::BeginCheckpointRequest& request);
absl::Status CheckMetrics(const v1::PushMetricsRequest& request);
absl::Status CheckLogs(const v1::PushLogsRequest& request);

// Names that are rows of the metric table; the message lists them when one is not.
absl::Status CheckMetricNames(const google::protobuf::RepeatedPtrField<std::string>& names);

// `fallback` for 0; INVALID_ARGUMENT outside [1, limit].
absl::StatusOr<int64_t> PageSize(absl::string_view field, int64_t value, int64_t fallback,
                                 int64_t limit);

}  // namespace octavo::rpc
