// Jobs that wait for a device: those that may be placed now, in the order of service, and those
// whose restart is held back. Follows from the committed jobs.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "server/core/events.h"
#include "server/scheduling/plan.h"

namespace octavo::core {

class Pending {
 public:
  // `former` is the record that `record` replaces, null for a new job.
  void Update(const JobRecord* former, const JobRecord& record);
  // Restarts whose backoff is over become ready; `find` gives the record of an order.
  template <typename Find>
  void Advance(absl::Duration now, Find find) {
    while (!held_back_.empty() && held_back_.begin()->first <= now) {
      const int64_t order = held_back_.begin()->second;
      held_back_.erase(held_back_.begin());
      ready_.Add(Waiting(*find(order)));
    }
  }
  const scheduling::WaitingJobs& ready() const { return ready_; }

  static scheduling::WaitingJob Waiting(const JobRecord& record);

 private:
  scheduling::WaitingJobs ready_;
  std::set<std::pair<absl::Duration, int64_t>> held_back_;  // until, order
};

}  // namespace octavo::core
