// What the core takes and gives. The shell around it owns time, randomness, sockets and the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::core {

// `wall` is for records; `now`, monotonic, for leases.
struct Moment {
  absl::Time wall;
  absl::Duration now;
};

struct RegisterWorker {
  v1::RegisterWorkerRequest request;
};
// On an error (the worker is not registered, or another incarnation replaced it) the shell ends the
// session with it.
struct Heartbeat {
  v1::SessionRequest request;
};
struct SessionClosed {
  v1::WorkerIdentity worker;
};

// What changes workers and leases alone. None of it is durable, so an observation is answered at
// once and never fails for want of a disk.
using Observation = std::variant<RegisterWorker, Heartbeat, SessionClosed,
                                 v1::ReportAttemptStartedRequest, v1::BeginCheckpointRequest>;

struct SubmitJob {
  v1::SubmitJobRequest request;  // validated, defaults filled in
  std::string job_id;            // fresh, used only if this is not a repetition
  std::string spec_sha256;       // JobSpecSha256(request.spec)
  int64_t memory_bytes = 0;      // planned; 0: unknown
};
struct CancelJob {
  std::string job_id;
};

// What changes jobs. Its answer and signals may leave once its writes are durable.
using Request =
    std::variant<SubmitJob, CancelJob, v1::ReportAttemptFinishedRequest,
                 v1::CommitCheckpointRequest, v1::PushMetricsRequest, v1::PushLogsRequest>;

// One version of a job. It is shared and never changes: a job changes by another record in its
// place.
struct JobRecord {
  v1::Job job;                                            // pending_reason is empty, see Describe
  int64_t order = 0;                                      // position in the order of submission
  absl::Duration not_before = -absl::InfiniteDuration();  // of the next attempt; not durable
};
using JobPointer = std::shared_ptr<const JobRecord>;

// Writes. Each replaces or appends whole records, so that applying one twice changes nothing.
struct PutJob {
  JobPointer record;  // under its order, which is also the key of paging
};
struct PutRequest {  // remembers an answered SubmitJob
  std::string request_id;
  std::string job_id;
  std::string spec_sha256;
};
struct PutMetrics {
  std::string job_id;
  std::vector<v1::MetricPoint> points;  // replace what is stored under the same name and step
};
struct LogCursor {  // one per job
  std::string job_id;
  int64_t next_offset = 0;
  int64_t bytes = 0;  // of the stored lines' text
  bool full = false;  // the limit was reached and a line says so; later lines are dropped
  int64_t epoch = 0;
  // Of PushLogs of that attempt: a repeated batch after a restart is recognised by it.
  int64_t next_sequence = 0;
};
struct PutLogs {
  LogCursor cursor;                // replaces the job's
  std::vector<v1::LogLine> lines;  // with offsets; may be empty
};
using Write = std::variant<PutJob, PutRequest, PutMetrics, PutLogs>;

using AnswerBody =
    std::variant<std::monostate, v1::Job, v1::RegisterWorkerResponse, v1::CommitCheckpointResponse>;

struct Signal {  // to the worker's open session, if it has one
  v1::WorkerIdentity worker;
  v1::SessionResponse message;
};

struct Effects {
  absl::StatusOr<AnswerBody> answer = AnswerBody();
  std::vector<Signal> signals;
};

}  // namespace octavo::core
