#include "server/rpc/checks.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "proto/support/metric_table.h"

namespace octavo::rpc {
namespace {

constexpr size_t kMaxIdLength = 128;
constexpr size_t kMaxTextLength = 4096;  // of a path
constexpr int kMaxDevices = 64;
constexpr int kMaxRunning = 1024;  // leases that one worker may list
constexpr int64_t kMaxStep = int64_t{1} << 31;

absl::Status Invalid(absl::string_view field, absl::string_view value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": \"", value.substr(0, 80), "\" is not ", wanted));
}

bool IsIdentifier(absl::string_view text, size_t limit) {
  return !text.empty() && text.size() <= limit && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

absl::Status CheckStep(absl::string_view field, int64_t step) {
  if (step >= 1 && step < kMaxStep) return absl::OkStatus();
  return Invalid(field, absl::StrCat(step), "a step in [1, 2^31)");
}

absl::Status CheckFolder(absl::string_view field, const std::string& folder) {
  if (absl::StartsWith(folder, "/") && folder.size() <= kMaxTextLength) return absl::OkStatus();
  return Invalid(field, folder,
                 absl::StrCat("an absolute path of at most ", kMaxTextLength, " characters"));
}

absl::Status CheckBytes(absl::string_view what, int64_t bytes, int64_t limit) {
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", bytes, " bytes; the limit is ", limit, ": send smaller batches"));
}

template <typename Leases>
absl::Status CheckRunning(const Leases& running) {
  if (running.size() > kMaxRunning) {
    return Invalid("running", absl::StrCat(running.size(), " leases"),
                   absl::StrCat("at most ", kMaxRunning));
  }
  for (const v1::LeaseIdentity& lease : running) RETURN_IF_ERROR(CheckLease(lease));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequestId(const std::string& request_id) {
  if (IsIdentifier(request_id, 64) && !absl::StrContains(request_id, '.')) return absl::OkStatus();
  return Invalid("request_id", request_id, "1 to 64 characters of [A-Za-z0-9_-]");
}

absl::Status CheckJobId(const std::string& job_id) {
  if (IsIdentifier(job_id, kMaxIdLength)) return absl::OkStatus();
  return Invalid("job_id", job_id, "a job id, as \"job-\" and 8 characters");
}

absl::Status CheckWorker(const v1::WorkerIdentity& worker) {
  if (!IsIdentifier(worker.worker_id(), kMaxIdLength)) {
    return Invalid("worker.worker_id", worker.worker_id(),
                   absl::StrCat("1 to ", kMaxIdLength, " characters of [A-Za-z0-9._-]"));
  }
  if (!IsIdentifier(worker.incarnation(), kMaxIdLength)) {
    return Invalid("worker.incarnation", worker.incarnation(), "16 hexadecimal digits");
  }
  return absl::OkStatus();
}

absl::Status CheckLease(const v1::LeaseIdentity& lease) {
  RETURN_IF_ERROR(CheckWorker(lease.worker()));
  RETURN_IF_ERROR(CheckJobId(lease.job_id()));
  if (lease.epoch() < 1)
    return Invalid("lease.epoch", absl::StrCat(lease.epoch()), "an epoch, which counts from 1");
  return absl::OkStatus();
}

absl::Status CheckRegister(const v1::RegisterWorkerRequest& request) {
  RETURN_IF_ERROR(CheckWorker(request.worker()));
  if (request.devices().empty() || request.devices_size() > kMaxDevices) {
    return Invalid("devices", absl::StrCat(request.devices_size(), " devices"),
                   absl::StrCat("1 to ", kMaxDevices));
  }
  std::set<std::pair<std::string, int32_t>> named;
  for (const v1::Device& device : request.devices()) {
    if (device.kind() != "cpu" && device.kind() != "gpu") {
      return Invalid("devices.kind", device.kind(), "\"cpu\" or \"gpu\"");
    }
    if (device.index() < 0 || device.index() >= kMaxDevices) {
      return Invalid("devices.index", absl::StrCat(device.index()),
                     absl::StrCat("in [0, ", kMaxDevices, ")"));
    }
    if (!named.emplace(device.kind(), device.index()).second) {
      return absl::InvalidArgumentError(absl::StrCat("devices: ", device.kind(), " ",
                                                     device.index(),
                                                     " is named twice; name each device once"));
    }
    if (device.memory_bytes() < 0) {
      return Invalid("devices.memory_bytes", absl::StrCat(device.memory_bytes()), "0 or more");
    }
  }
  RETURN_IF_ERROR(
      CheckBytes("the registration", static_cast<int64_t>(request.ByteSizeLong()), kMaxSpecBytes));
  return CheckRunning(request.running());
}

absl::Status CheckHeartbeat(const v1::SessionRequest& request) {
  RETURN_IF_ERROR(CheckWorker(request.worker()));
  return CheckRunning(request.running());
}

absl::Status CheckCheckpoint(const v1::CommitCheckpointRequest& request) {
  RETURN_IF_ERROR(CheckLease(request.lease()));
  RETURN_IF_ERROR(CheckStep("checkpoint.step", request.checkpoint().step()));
  RETURN_IF_ERROR(CheckFolder("checkpoint.folder", request.checkpoint().folder()));
  const std::string& sha256 = request.checkpoint().manifest_sha256();
  if (sha256.size() != 64 || !std::all_of(sha256.begin(), sha256.end(), absl::ascii_isxdigit)) {
    return Invalid("checkpoint.manifest_sha256", sha256, "64 hexadecimal digits");
  }
  return absl::OkStatus();
}

absl::Status CheckBeginCheckpoint(const v1::BeginCheckpointRequest& request) {
  RETURN_IF_ERROR(CheckLease(request.lease()));
  RETURN_IF_ERROR(CheckStep("step", request.step()));
  return CheckFolder("folder", request.folder());
}

absl::Status CheckMetrics(const v1::PushMetricsRequest& request) {
  RETURN_IF_ERROR(CheckLease(request.lease()));
  RETURN_IF_ERROR(
      CheckBytes("points", static_cast<int64_t>(request.ByteSizeLong()), kMaxMetricBatchBytes));
  for (const v1::MetricPoint& point : request.points()) {
    if (FindMetric(point.name()) == nullptr)
      return Invalid("points.name", point.name(), "a metric of this version");
    RETURN_IF_ERROR(CheckStep("points.step", point.step()));
  }
  return absl::OkStatus();
}

absl::Status CheckLogs(const v1::PushLogsRequest& request) {
  RETURN_IF_ERROR(CheckLease(request.lease()));
  if (request.sequence() < 0)
    return Invalid("sequence", absl::StrCat(request.sequence()), "0 or more");
  RETURN_IF_ERROR(
      CheckBytes("lines", static_cast<int64_t>(request.ByteSizeLong()), kMaxLogBatchBytes));
  for (const v1::LogLine& line : request.lines()) {
    RETURN_IF_ERROR(
        CheckBytes("lines.text", static_cast<int64_t>(line.text().size()), kMaxLogLineBytes));
    if (absl::StrContains(line.text(), '\n'))
      return Invalid("lines.text", line.text(), "one line: it holds a line end");
  }
  return absl::OkStatus();
}

absl::Status CheckMetricNames(const google::protobuf::RepeatedPtrField<std::string>& names) {
  if (names.size() > static_cast<int>(MetricTable().size())) {
    return Invalid("names", absl::StrCat(names.size(), " names"),
                   absl::StrCat("at most ", MetricTable().size()));
  }
  for (const std::string& name : names) {
    if (FindMetric(name) != nullptr) continue;
    return Invalid(
        "names", name,
        absl::StrCat("a metric; these are: ",
                     absl::StrJoin(MetricTable(), ", ", [](std::string* out, const MetricRow& row) {
                       absl::StrAppend(out, row.name);
                     })));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PageSize(absl::string_view field, int64_t value, int64_t fallback,
                                 int64_t limit) {
  if (value == 0) return fallback;
  if (value < 1 || value > limit)
    return Invalid(field, absl::StrCat(value), absl::StrCat("in [1, ", limit, "]"));
  return value;
}

}  // namespace octavo::rpc
