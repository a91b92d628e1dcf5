#include "server/telemetry/snapshot.h"

#include <limits>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace octavo::telemetry {
namespace {

std::string LastPart(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  return std::string(path.substr(path.rfind('/') + 1));
}

ActiveJob Describe(const v1::Job& job, const LatestMetrics& latest) {
  ActiveJob active;
  active.id = job.id();
  active.name = job.spec().name();
  if (job.spec().stages_size() > 0) {
    active.model = LastPart(job.spec().stages(0).model().folder());
    active.recipe = job.spec().stages(0).recipe().name();
  }
  if (const auto found = latest.jobs().find(job.id()); found != latest.jobs().end()) {
    active.latest = found->second;
  }
  return active;
}

}  // namespace

bool IsExported(const v1::Job& job, absl::Time now, absl::Duration retention) {
  switch (job.state()) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_CANCELLING:
      return true;
    case v1::JOB_STATE_SUCCEEDED:
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_CANCELLED:
      return now < core::ToTime(job.end_time()) + retention;
    default:
      return false;
  }
}

void DescribeCore(const core::Core& core, const LatestMetrics& latest, absl::Time now,
                  absl::Duration retention, Snapshot* snapshot) {
  const core::Jobs& jobs = core.jobs();
  for (int state = v1::JOB_STATE_PENDING; state <= v1::JobState_MAX; ++state) {
    snapshot->jobs[static_cast<v1::JobState>(state)] = jobs.Count(static_cast<v1::JobState>(state));
  }
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  for (const auto& record : jobs.List(0, kAll, {v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLING})) {
    snapshot->active_jobs.push_back(Describe(record->job, latest));
  }
  for (const auto& record : jobs.EndedSince(now - retention)) {
    if (IsExported(record->job, now, retention)) {
      snapshot->active_jobs.push_back(Describe(record->job, latest));
    }
  }
  snapshot->workers[v1::WORKER_STATE_CONNECTED] = core.fleet().connected();
  snapshot->workers[v1::WORKER_STATE_UNREACHABLE] = core.fleet().size() - core.fleet().connected();
  snapshot->counters = core.counters();
}

}  // namespace octavo::telemetry
