// Placement as a pure function: facts in, plan out; ties are broken by id, so that a replay is
// exact.
//
// A job takes one device. Jobs are served by priority, then in order of submission, and each gets
// the tightest free device that holds it, so that large devices stay free for large jobs. A job
// that no free device holds is passed over. That never delays it: every device that could serve it
// is busy or already given to a job before it, and whoever comes later takes only devices too small
// for it. When one of the right size falls free the passed-over job is asked first again, so it
// cannot starve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::scheduling {

struct WaitingJob {
  std::string id;
  int32_t priority = 0;  // higher first
  int64_t order = 0;     // of submission, unique
  std::string device_kind;
  int64_t memory_bytes = 0;  // on the device; 0: fits anywhere
};

struct DeviceState {
  std::string worker_id;
  std::string kind;
  int32_t index = 0;
  int64_t memory_bytes = 0;
  bool free = false;  // its worker can be reached and no lease is on it
};

struct Snapshot {
  std::vector<WaitingJob> jobs;
  std::vector<DeviceState> devices;  // of every registered worker
};

struct Placement {
  std::string job_id;
  std::string worker_id;
  int32_t device_index = 0;
};

struct Unplaced {
  std::string job_id;
  std::string reason;  // e.g. "needs 12.3 GiB on a gpu device; the largest has 8.0 GiB"
};

struct Plan {
  std::vector<Placement> placements;
  std::vector<Unplaced> unplaced;
};

// O((jobs + devices) log devices).
Plan PlanAssignments(const Snapshot& snapshot);

}  // namespace octavo::scheduling
