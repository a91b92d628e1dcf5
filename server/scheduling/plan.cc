#include "server/scheduling/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::scheduling {
namespace {

// One kind of device over the whole fleet.
struct Pool {
  std::set<std::tuple<int64_t, std::string, int32_t>> free;  // memory, worker, index
  int64_t largest_bytes = 0;                                 // free or not
  // By need: formatting one per job would dominate a plan of thousands.
  std::map<int64_t, std::string> reasons;
};

std::map<std::string, Pool> PoolDevices(const std::vector<DeviceState>& devices) {
  std::map<std::string, Pool> pools;
  for (const DeviceState& device : devices) {
    Pool& pool = pools[device.kind];
    pool.largest_bytes = std::max(pool.largest_bytes, device.memory_bytes);
    if (device.free) {
      pool.free.emplace(device.memory_bytes, device.worker_id, device.index);
    }
  }
  return pools;
}

std::string Gibibytes(int64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
}

std::string Reason(const Pool& pool, const std::string& kind, int64_t need_bytes) {
  if (need_bytes > pool.largest_bytes) {
    return absl::StrCat("needs ", Gibibytes(need_bytes), " on a ", kind,
                        " device; the largest has ", Gibibytes(pool.largest_bytes));
  }
  return absl::StrCat("waits for a free ", kind, " device",
                      need_bytes > 0 ? absl::StrCat(" of ", Gibibytes(need_bytes)) : "");
}

}  // namespace

Plan PlanAssignments(const Snapshot& snapshot) {
  std::map<std::string, Pool> pools = PoolDevices(snapshot.devices);
  std::vector<const WaitingJob*> jobs;
  jobs.reserve(snapshot.jobs.size());
  for (const WaitingJob& job : snapshot.jobs) jobs.push_back(&job);
  std::sort(jobs.begin(), jobs.end(), [](const WaitingJob* a, const WaitingJob* b) {
    return std::tie(b->priority, a->order, a->id) < std::tie(a->priority, b->order, b->id);
  });
  Plan plan;
  for (const WaitingJob* job : jobs) {
    const auto found = pools.find(job->device_kind);
    if (found == pools.end()) {
      plan.unplaced.push_back(
          {job->id, absl::StrCat("no registered worker has a ", job->device_kind, " device")});
      continue;
    }
    Pool& pool = found->second;
    const auto tightest = pool.free.lower_bound({job->memory_bytes, "", 0});
    if (tightest == pool.free.end()) {
      std::string& reason = pool.reasons[job->memory_bytes];
      if (reason.empty()) reason = Reason(pool, job->device_kind, job->memory_bytes);
      plan.unplaced.push_back({job->id, reason});
      continue;
    }
    plan.placements.push_back({job->id, std::get<1>(*tightest), std::get<2>(*tightest)});
    pool.free.erase(tightest);
  }
  return plan;
}

}  // namespace octavo::scheduling
