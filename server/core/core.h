// The coordinator's brain: jobs, attempts, leases and workers as a deterministic state machine. It
// knows no clock, thread, file or socket; equal events at equal times give equal effects.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/core/events.h"

namespace octavo::core {

// A worker's clock may run up to a tenth faster or slower than true time, and so may ours: a lease
// stays exclusive as long as (lease - lease_margin) / 0.9 < (lease + regrant_margin) / 1.1.
struct Settings {
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(15);
  absl::Duration lease_margin = absl::Seconds(3);    // a worker stops this long before its lapse
  absl::Duration regrant_margin = absl::Seconds(2);  // and the coordinator waits this long after it
  absl::Duration unreachable_after = absl::Seconds(5);
  // Doubles per restart without a new checkpoint, up to a minute.
  absl::Duration retry_backoff = absl::Seconds(1);
  // That no longer list a started attempt before it counts as crashed.
  int missing_heartbeats = 5;
  int64_t max_pending_jobs = 10000;
  int64_t max_workers = 10000;
  // Beyond it lines are dropped, and one line says so.
  int64_t max_log_bytes_per_job = int64_t{256} << 20;
};

// Everything durable, as the store hands it back at start.
struct DurableState {
  std::vector<PutJob> jobs;
  std::vector<PutRequest> requests;
  std::vector<LogCursor> log_cursors;  // of jobs that are not terminal
};

class Core {
 public:
  // Leases of running attempts start anew at `now` (the workers may have been renewed by the former
  // process up to its end).
  static std::unique_ptr<Core> Create(const Settings& settings, DurableState state, absl::Time wall,
                                      absl::Duration now);
  virtual ~Core() = default;

  // `wall` is for records; `now`, monotonic, for leases.
  virtual Effects Apply(const Event& event, absl::Time wall, absl::Duration now) = 0;

  // Reads, for queries and telemetry; valid until the next Apply.
  virtual const v1::Job* FindJob(const std::string& job_id) const = 0;
  struct JobEntry {
    int64_t order;
    const v1::Job* job;
  };
  // Newest first, at most `limit`, with order below `before` (0: from the newest).
  virtual std::vector<JobEntry> ListJobs(int64_t before, int64_t limit,
                                         const std::vector<v1::JobState>& states) const = 0;
  virtual std::vector<v1::Worker> ListWorkers() const = 0;  // by id
  struct Counters {
    int64_t attempts_started = 0;
    std::map<v1::FailureCause, int64_t> attempts_failed;
    int64_t fenced = 0;  // facts refused under an old epoch
    int64_t submits = 0;
    int64_t repeated_submits = 0;
  };
  virtual const Counters& counters() const = 0;
};

}  // namespace octavo::core
