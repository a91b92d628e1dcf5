#include "server/scheduling/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::scheduling {
namespace {

WaitingJobs::Turn TurnOf(const WaitingJob& job) { return {-int64_t{job.priority}, job.order}; }

FreeDevices::Entry EntryOf(const FreeDevice& device) {
  return {device.memory_bytes, device.worker_id, device.index};
}

std::string Gibibytes(int64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
}

// What one plan has given away of the devices and jobs of one kind, which stay as they are.
class KindPlan {
 public:
  KindPlan(const WaitingJobs::ByNeed& jobs, const std::set<FreeDevices::Entry>& devices)
      : jobs_(jobs), devices_(devices) {}

  // The first job in turn that some free device holds, on the tightest such device.
  std::optional<Placement> Next() {
    const std::optional<int64_t> largest = LargestFree();
    if (!largest) return std::nullopt;
    std::optional<std::pair<WaitingJobs::Turn, int64_t>> first;  // turn, need
    for (auto need = jobs_.begin(); need != jobs_.end() && need->first <= *largest; ++need) {
      const std::optional<WaitingJobs::Turn> turn = FirstLeft(need->second);
      if (turn && (!first || *turn < first->first)) first = {*turn, need->first};
    }
    if (!first) return std::nullopt;
    auto device = devices_.lower_bound({first->second, "", 0});
    while (taken_devices_.count(*device) > 0) ++device;  // the largest is left, so this ends
    taken_devices_.insert(*device);
    taken_jobs_.insert(first->first);
    return Placement{first->first.second, std::get<1>(*device), std::get<2>(*device)};
  }

 private:
  std::optional<int64_t> LargestFree() const {
    for (auto device = devices_.rbegin(); device != devices_.rend(); ++device) {
      if (taken_devices_.count(*device) == 0) return std::get<0>(*device);
    }
    return std::nullopt;
  }

  std::optional<WaitingJobs::Turn> FirstLeft(const std::set<WaitingJobs::Turn>& turns) const {
    for (const WaitingJobs::Turn& turn : turns) {
      if (taken_jobs_.count(turn) == 0) return turn;
    }
    return std::nullopt;
  }

  const WaitingJobs::ByNeed& jobs_;
  const std::set<FreeDevices::Entry>& devices_;
  std::set<FreeDevices::Entry> taken_devices_;
  std::set<WaitingJobs::Turn> taken_jobs_;
};

}  // namespace

void WaitingJobs::Add(const WaitingJob& job) {
  size_ += by_kind_[job.device_kind][job.memory_bytes].insert(TurnOf(job)).second ? 1 : 0;
}

void WaitingJobs::Remove(const WaitingJob& job) {
  const auto kind = by_kind_.find(job.device_kind);
  if (kind == by_kind_.end()) return;
  const auto need = kind->second.find(job.memory_bytes);
  if (need == kind->second.end()) return;
  size_ -= static_cast<int64_t>(need->second.erase(TurnOf(job)));
  if (need->second.empty()) kind->second.erase(need);
  if (kind->second.empty()) by_kind_.erase(kind);
}

void FreeDevices::Add(const FreeDevice& device) { by_kind_[device.kind].insert(EntryOf(device)); }

void FreeDevices::Remove(const FreeDevice& device) {
  const auto kind = by_kind_.find(device.kind);
  if (kind == by_kind_.end()) return;
  kind->second.erase(EntryOf(device));
  if (kind->second.empty()) by_kind_.erase(kind);
}

std::vector<Placement> PlanAssignments(const WaitingJobs& jobs, const FreeDevices& devices,
                                       int64_t limit) {
  std::vector<Placement> placements;
  for (const auto& [kind, free] : devices.by_kind()) {
    const auto waiting = jobs.by_kind().find(kind);
    if (waiting == jobs.by_kind().end()) continue;
    KindPlan plan(waiting->second, free);
    while (static_cast<int64_t>(placements.size()) < limit) {
      std::optional<Placement> next = plan.Next();
      if (!next) break;
      placements.push_back(*std::move(next));
    }
  }
  return placements;
}

std::string WaitingReason(const std::string& device_kind, int64_t need_bytes,
                          std::optional<int64_t> largest_bytes) {
  if (!largest_bytes) {
    return absl::StrCat("no registered worker has a ", device_kind, " device");
  }
  if (need_bytes > *largest_bytes) {
    return absl::StrCat("needs ", Gibibytes(need_bytes), " on a ", device_kind,
                        " device; the largest has ", Gibibytes(*largest_bytes));
  }
  return absl::StrCat("waits for a free ", device_kind, " device",
                      need_bytes > 0 ? absl::StrCat(" of ", Gibibytes(need_bytes)) : "");
}

}  // namespace octavo::scheduling
