#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/core/state.h"

namespace octavo::core {

void State::Advance() {
  if (now_ >= next_lapse_) LapseLeases();
  if (now_ >= next_worker_review_) ReviewWorkers();
  while (!backing_off_.empty() && backing_off_.begin()->first <= now_) {
    AddReady(by_order_.at(backing_off_.begin()->second));
    backing_off_.erase(backing_off_.begin());
  }
}

// The coordinator itself stood still: the heartbeats of that time wait unread. Longer leases are
// always safe, since a worker trusts only what it was told.
void State::ForgivePause() {
  for (const auto& [order, record] : leased_) {
    record->lease->ends = std::max(record->lease->ends, now_ + settings_.lease);
    record->lease->assign_until = std::max(record->lease->assign_until, now_ + settings_.lease);
  }
  for (auto& [id, worker] : workers_) worker.last_heartbeat = now_;
}

void State::LapseLeases() {
  next_lapse_ = absl::InfiniteDuration();
  std::vector<JobRecord*> lapsed;
  for (const auto& [order, record] : leased_) {
    const absl::Duration lapse = LapseOf(*record->lease);
    if (lapse <= now_) {
      lapsed.push_back(record);
    } else {
      next_lapse_ = std::min(next_lapse_, lapse);
    }
  }
  for (JobRecord* record : lapsed) {
    v1::Failure failure;
    failure.set_cause(v1::FAILURE_CAUSE_WORKER_LOST);
    failure.set_message(absl::StrCat(
        "the lease of worker ", HolderOf(record->job).worker_id(), " lapsed: not renewed for ",
        absl::FormatDuration(settings_.lease + settings_.regrant_margin)));
    EndAttempt(record, &failure, nullptr);
  }
}

void State::ReviewWorkers() {
  next_worker_review_ = absl::InfiniteDuration();
  const absl::Duration lost_after = settings_.lease + settings_.regrant_margin;
  for (auto position = workers_.begin(); position != workers_.end();) {
    WorkerRecord& worker = position->second;
    const absl::Duration silence = now_ - worker.last_heartbeat;
    if (silence >= settings_.unreachable_after) worker.connected = false;
    if (silence >= lost_after && worker.leases.empty()) {
      replaced_.erase(position->first);
      position = workers_.erase(position);
      fleet_changed_ = true;
      continue;
    }
    const absl::Duration due = worker.connected ? settings_.unreachable_after : lost_after;
    const absl::Duration next = std::max(worker.last_heartbeat + due, now_ + settings_.heartbeat);
    next_worker_review_ = std::min(next_worker_review_, next);
    ++position;
  }
}

}  // namespace octavo::core
