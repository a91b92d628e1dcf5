#include "server/core/pending.h"

namespace octavo::core {

scheduling::WaitingJob Pending::Waiting(const JobRecord& record) {
  const v1::Resources& resources = record.job.spec().resources();
  return {.priority = record.job.spec().priority(),
          .order = record.order,
          .device_kind = resources.device_kind(),
          .memory_bytes =
              record.job.memory_bytes() > 0 ? record.job.memory_bytes() : resources.memory_bytes()};
}

void Pending::Update(const JobRecord* former, const JobRecord& record) {
  if (former != nullptr && former->job.state() == v1::JOB_STATE_PENDING) {
    ready_.Remove(Waiting(*former));
    held_back_.erase({former->not_before, former->order});
  }
  // Also one that may begin at once: Advance moves it.
  if (record.job.state() == v1::JOB_STATE_PENDING) {
    held_back_.emplace(record.not_before, record.order);
  }
}

}  // namespace octavo::core
