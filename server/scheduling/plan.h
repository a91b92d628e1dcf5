// Placement as a pure function: waiting jobs and free devices in, placements out; ties are broken
// by order and id, so that a replay is exact.
//
// A job takes one device. Jobs are served by priority, then in order of submission, and each gets
// the tightest free device that holds it, so that large devices stay free for large jobs. A job
// that no free device holds is passed over. That never delays it: every device that could serve it
// is busy or already given to a job before it, and whoever comes later takes only devices too small
// for it. When one of the right size falls free the passed-over job is asked first again, so it
// cannot starve.
//
// Both sides are kept sorted by those who own them, so that a plan costs what it places and not
// what waits or exists.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace octavo::scheduling {

struct WaitingJob {
  int32_t priority = 0;  // higher first
  int64_t order = 0;     // of submission, unique
  std::string device_kind;
  int64_t memory_bytes = 0;  // on the device; 0: fits anywhere
};

class WaitingJobs {
 public:
  using Turn = std::pair<int64_t, int64_t>;          // -priority, order: who is served first
  using ByNeed = std::map<int64_t, std::set<Turn>>;  // by memory_bytes; no set is empty
  using ByKind = std::map<std::string, ByNeed>;      // no map is empty

  void Add(const WaitingJob& job);
  void Remove(const WaitingJob& job);  // does nothing for a job that is not there
  const ByKind& by_kind() const { return by_kind_; }
  int64_t size() const { return size_; }

 private:
  ByKind by_kind_;
  int64_t size_ = 0;
};

struct FreeDevice {
  std::string worker_id;
  std::string kind;
  int32_t index = 0;
  int64_t memory_bytes = 0;
};

class FreeDevices {
 public:
  using Entry = std::tuple<int64_t, std::string, int32_t>;  // memory_bytes, worker_id, index
  using ByKind = std::map<std::string, std::set<Entry>>;    // no set is empty

  void Add(const FreeDevice& device);
  void Remove(const FreeDevice& device);
  const ByKind& by_kind() const { return by_kind_; }

 private:
  ByKind by_kind_;
};

struct Placement {
  int64_t order = 0;  // of the job
  std::string worker_id;
  int32_t device_index = 0;  // of the job's kind
};

// At most `limit` placements; more may be possible then. O(placements^2 + placements x distinct
// needs x log devices), and O(kinds) when nothing can be placed.
std::vector<Placement> PlanAssignments(const WaitingJobs& jobs, const FreeDevices& devices,
                                       int64_t limit);

// Why a job of that need waits, e.g. "needs 12.3 GiB on a gpu device; the largest has 8.0 GiB".
// `largest_bytes` is of the registered devices of the kind, free or not; none: there is no such
// device.
std::string WaitingReason(const std::string& device_kind, int64_t need_bytes,
                          std::optional<int64_t> largest_bytes);

}  // namespace octavo::scheduling
