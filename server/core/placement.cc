#include <algorithm>
#include <utility>

#include "base/status.h"
#include "server/core/state.h"
#include "server/scheduling/plan.h"

namespace octavo::core {
namespace {

constexpr size_t kAskedAtOnce = 256;

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

State::ReadyKey State::KeyOf(const JobRecord& record) {
  return {-int64_t{record.job.spec().priority()}, record.order};
}

void State::AddReady(JobRecord* record) {
  ready_.insert(KeyOf(*record));
  unplanned_.insert(KeyOf(*record));
}

void State::RemovePending(JobRecord* record) {
  ready_.erase(KeyOf(*record));
  unplanned_.erase(KeyOf(*record));
  backing_off_.erase({record->not_before, record->order});
}

std::vector<scheduling::DeviceState> State::Devices() const {
  std::vector<scheduling::DeviceState> devices;
  for (const auto& [id, worker] : workers_) {
    std::set<std::pair<std::string, int32_t>> busy;
    for (const int64_t order : worker.leases) {
      const v1::Job& job = leased_.at(order)->job;
      busy.emplace(job.spec().resources().device_kind(),
                   job.attempts(job.attempts_size() - 1).device_index());
    }
    for (const v1::Device& device : worker.devices) {
      devices.push_back(
          {.worker_id = id,
           .kind = device.kind(),
           .index = device.index(),
           .memory_bytes = device.memory_bytes(),
           .free = worker.connected && busy.count({device.kind(), device.index()}) == 0});
    }
  }
  return devices;
}

// A ready job that found no device finds none until one comes or falls free, and its reason stands
// until the largest device of its kind is another. So most events ask only the jobs that are new,
// and a free device only as many as it takes to find one that fits.
void State::Place() {
  if (!fleet_changed_ && unplanned_.empty()) return;
  std::vector<scheduling::DeviceState> devices = Devices();
  std::map<std::string, int64_t> largest;
  for (const scheduling::DeviceState& device : devices) {
    largest[device.kind] = std::max(largest[device.kind], device.memory_bytes);
  }
  if (largest != largest_bytes_) {
    largest_bytes_ = std::move(largest);
    unplanned_ = ready_;
  }
  if (std::exchange(fleet_changed_, false)) PlaceWhileDevicesAreFree(&devices);
  PlaceThese({unplanned_.begin(), unplanned_.end()}, &devices);
  unplanned_.clear();
}

void State::PlaceWhileDevicesAreFree(std::vector<scheduling::DeviceState>* devices) {
  const auto is_free = [](const scheduling::DeviceState& device) { return device.free; };
  auto next = ready_.begin();
  while (next != ready_.end() && std::any_of(devices->begin(), devices->end(), is_free)) {
    std::vector<ReadyKey> keys;
    for (; next != ready_.end() && keys.size() < kAskedAtOnce; ++next) keys.push_back(*next);
    const ReadyKey last = keys.back();
    PlaceThese(keys, devices);
    next = ready_.upper_bound(last);
  }
}

void State::PlaceThese(const std::vector<ReadyKey>& keys,
                       std::vector<scheduling::DeviceState>* devices) {
  if (keys.empty()) return;
  scheduling::Snapshot snapshot;
  for (const ReadyKey& key : keys) snapshot.jobs.push_back(Waiting(*by_order_.at(key.second)));
  snapshot.devices = std::move(*devices);
  const scheduling::Plan plan = scheduling::PlanAssignments(snapshot);
  for (const scheduling::Placement& placement : plan.placements) {
    BeginAttempt(Find(placement.job_id), &workers_.at(placement.worker_id), placement.device_index);
  }
  *devices = plan.placements.empty() ? std::move(snapshot.devices) : Devices();
  for (const scheduling::Unplaced& unplaced : plan.unplaced) {
    JobRecord* record = Find(unplaced.job_id);
    if (record->job.pending_reason() == unplaced.reason) continue;
    record->job.set_pending_reason(unplaced.reason);
    Touch(record);
  }
}

}  // namespace octavo::core
