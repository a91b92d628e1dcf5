#include <algorithm>
#include <utility>

#include "base/status.h"
#include "proto/support/job_state.h"
#include "server/core/state.h"

namespace octavo::core {

std::unique_ptr<Core> Core::Create(const Settings& settings, DurableState state, absl::Time wall,
                                   absl::Duration now) {
  auto core = std::make_unique<State>(settings, now);
  core->Restore(std::move(state), wall);
  return core;
}

// Workers are unknown until they register. What they run keeps its lease meanwhile: the former
// process may have renewed it up to its end. An attempt whose assignment was lost with that process
// is assigned again.
void State::Restore(DurableState state, absl::Time wall) {
  wall_ = wall;
  for (PutJob& put : state.jobs) {
    const std::string id = put.job.id();
    JobRecord& record = jobs_[id];
    record.job = std::move(put.job);
    record.order = put.order;
    by_order_[put.order] = &record;
  }
  for (LogCursor& cursor : state.log_cursors) {
    JobRecord* record = Find(cursor.job_id);
    if (record != nullptr && !IsTerminal(record->job.state())) record->log = std::move(cursor);
  }
  for (PutRequest& request : state.requests) {
    const std::string id = request.request_id;
    requests_[id] = std::move(request);
  }
  for (const auto& [order, record] : by_order_) {
    if (record->job.state() == v1::JOB_STATE_PENDING) {
      Requeue(record);
    } else if (!IsTerminal(record->job.state())) {
      CHECK(record->job.attempts_size() > 0);
      record->lease = Lease{.ends = now_ + settings_.lease, .assign_until = now_ + settings_.lease};
      leased_[order] = record;
      next_lapse_ = std::min(next_lapse_, LapseOf(*record->lease));
    }
  }
}

}  // namespace octavo::core
