// A device serves one attempt: in the coordinator's books, and of an agent's trainers. A job lies
// only on a device that holds it, and in the end every device is free.
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void AfterEvent(const Cluster& cluster) override {
    for (const auto& worker : cluster.workers) {
      std::set<std::pair<std::string, int32_t>> used;
      for (const auto& [job, attempt] : worker->attempts()) {
        if (!attempt.training) continue;
        if (used.emplace(attempt.spec.resources().device_kind(), attempt.device_index).second) {
          continue;
        }
        cluster.universe->Fail("device_booking",
                               absl::StrCat("two trainers on a device of ", worker->node.name));
      }
    }
    if (cluster.coordinator->core() != nullptr) CheckBooks(cluster);
  }

  void AtEnd(const Cluster& cluster) override {
    for (const v1::Worker& worker : cluster.coordinator->core()->ListWorkers("", 1000)) {
      if (worker.attempt_ids_size() == 0) continue;
      cluster.universe->Fail("device_booking",
                             absl::StrCat(worker.id(), " still holds ", worker.attempt_ids(0)));
    }
    for (const auto& worker : cluster.workers) {
      if (worker->attempts().empty()) continue;
      cluster.universe->Fail("device_booking", absl::StrCat(worker->node.name, " still runs ",
                                                            worker->attempts().begin()->first));
    }
  }

 private:
  static void CheckBooks(const Cluster& cluster) {
    std::map<std::tuple<std::string, std::string, int32_t>, std::string> booked;
    const auto jobs = cluster.coordinator->core()->jobs().List(
        0, 1000, {v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLING});
    for (const auto& entry : jobs) {
      const v1::Attempt& attempt = *entry->job.attempts().rbegin();
      const std::string& kind = entry->job.spec().resources().device_kind();
      const auto [other, first] = booked.emplace(
          std::tuple(attempt.worker_id(), kind, attempt.device_index()), entry->job.id());
      if (first) continue;
      cluster.universe->Fail(
          "device_booking", absl::StrCat(other->second, " and ", entry->job.id(), " share ", kind,
                                         " ", attempt.device_index(), " of ", attempt.worker_id()));
    }
  }
};

}  // namespace

std::unique_ptr<Invariant> DeviceBooking() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
