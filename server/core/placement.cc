#include <utility>

#include "base/status.h"
#include "server/core/state.h"
#include "server/scheduling/plan.h"

namespace octavo::core {
namespace {

scheduling::WaitingJob Waiting(const JobRecord& record) {
  const v1::Resources& resources = record.job.spec().resources();
  return {.id = record.job.id(),
          .priority = record.job.spec().priority(),
          .order = record.order,
          .device_kind = resources.device_kind(),
          .memory_bytes =
              record.job.memory_bytes() > 0 ? record.job.memory_bytes() : resources.memory_bytes()};
}

}  // namespace

void State::AddPending(JobRecord* record) {
  pending_.insert(record->order);
  unplanned_.insert(record->order);
}

void State::RemovePending(JobRecord* record) {
  pending_.erase(record->order);
  unplanned_.erase(record->order);
  backing_off_.erase({record->not_before, record->order});
}

// As long as no device came or fell free, a ready job that found none before finds none now, so
// only new ones are held against the fleet.
void State::Place() {
  scheduling::Snapshot snapshot;
  if (std::exchange(fleet_changed_, false)) {
    unplanned_ = pending_;
    for (const auto& [not_before, order] : backing_off_) unplanned_.erase(order);
  }
  if (unplanned_.empty()) return;
  for (const int64_t order : unplanned_) snapshot.jobs.push_back(Waiting(*by_order_.at(order)));
  unplanned_.clear();

  for (const auto& [id, worker] : workers_) {
    std::set<std::pair<std::string, int32_t>> busy;
    for (const int64_t order : worker.leases) {
      const v1::Job& job = leased_.at(order)->job;
      busy.emplace(job.spec().resources().device_kind(),
                   job.attempts(job.attempts_size() - 1).device_index());
    }
    for (const v1::Device& device : worker.devices) {
      snapshot.devices.push_back(
          {.worker_id = id,
           .kind = device.kind(),
           .index = device.index(),
           .memory_bytes = device.memory_bytes(),
           .free = worker.connected && busy.count({device.kind(), device.index()}) == 0});
    }
  }

  const scheduling::Plan plan = scheduling::PlanAssignments(std::move(snapshot));
  for (const scheduling::Placement& placement : plan.placements) {
    BeginAttempt(Find(placement.job_id), &workers_.at(placement.worker_id), placement.device_index);
  }
  for (const scheduling::Unplaced& unplaced : plan.unplaced) {
    JobRecord* record = Find(unplaced.job_id);
    if (record->job.pending_reason() == unplaced.reason) continue;
    record->job.set_pending_reason(unplaced.reason);
    Touch(record);
  }
}

}  // namespace octavo::core
