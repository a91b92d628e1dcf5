// Everything one scrape shows, taken in one piece between two batches of the core, so that its
// figures belong together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/core/core.h"
#include "server/telemetry/histogram.h"
#include "server/telemetry/latest_metrics.h"
#include "server/telemetry/rpc_counters.h"

namespace octavo::telemetry {

struct ActiveJob {
  std::string id;
  std::string name;
  std::string model;  // last part of the model folder
  std::string recipe;
  LatestOfJob latest;
};

struct Snapshot {
  std::map<v1::JobState, int64_t> jobs;
  std::map<v1::WorkerState, int64_t> workers;
  core::Counters counters;
  RpcCounters::Counts rpcs;
  Histogram commit_seconds{{}};
  int64_t commit_failures = 0;
  int64_t queued_events = 0;
  std::vector<ActiveJob> active_jobs;
};

// True while a job's series are exported: it runs, or it ended at most `retention` ago.
bool IsExported(const v1::Job& job, absl::Time now, absl::Duration retention);
// Fills jobs, workers, counters and active_jobs.
void DescribeCore(const core::Core& core, const LatestMetrics& latest, absl::Time now,
                  absl::Duration retention, Snapshot* snapshot);

}  // namespace octavo::telemetry
