// What the core takes and gives. The shell around it owns time, randomness, sockets and the disk.
//
//   Apply(event, now) -> effects: first every write becomes durable, in one transaction, then
//   answers and signals leave. So an answer never speaks of something a crash could undo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::core {

// Names the caller who waits for an answer; chosen by the shell; 0: nobody.
using Token = uint64_t;

struct SubmitJob {
  v1::SubmitJobRequest request;  // validated, defaults filled in
  std::string job_id;            // fresh, used only if this is not a repetition
  std::string spec_sha256;       // JobSpecSha256(request.spec)
  int64_t memory_bytes = 0;      // planned; 0: unknown
};
struct CancelJob {
  std::string job_id;
};
struct RegisterWorker {
  v1::RegisterWorkerRequest request;
};
// Answered too: on an error (the worker is not registered, or another incarnation replaced it) the
// shell ends the session with it.
struct Heartbeat {
  v1::SessionRequest request;
};
struct SessionClosed {
  v1::WorkerIdentity worker;
};
// Lets time pass: leases lapse, pending jobs are placed. Due at least once per Settings::heartbeat:
// a longer silence than Settings::unreachable_after reads as a pause of the coordinator itself, and
// every lease starts anew.
struct Tick {};

using EventBody = std::variant<SubmitJob, CancelJob, RegisterWorker, Heartbeat, SessionClosed,
                               v1::ReportAttemptStartedRequest, v1::ReportAttemptFinishedRequest,
                               v1::BeginCheckpointRequest, v1::CommitCheckpointRequest,
                               v1::PushMetricsRequest, v1::PushLogsRequest, Tick>;

struct Event {
  Token token = 0;
  EventBody body;
};

// Writes. Each replaces or appends whole records, so that applying one twice changes nothing.
struct PutJob {
  v1::Job job;
  int64_t order = 0;  // position in the order of submission; also the key of paging
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
struct Answer {
  Token token = 0;
  absl::Status status;
  AnswerBody body;
};

struct Signal {  // to the worker's open session, if it has one
  v1::WorkerIdentity worker;
  v1::SessionResponse message;
};

struct Effects {
  std::vector<Write> writes;
  std::vector<Answer> answers;
  std::vector<Signal> signals;
  std::vector<std::string> changed_jobs;  // ids, for WatchJob
};

}  // namespace octavo::core
