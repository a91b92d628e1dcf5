// No two trainers of a job believe at the same instant that they hold its lease, whatever their
// clocks; and a job has an open attempt exactly while it is RUNNING or CANCELLING.
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void AfterEvent(const Cluster& cluster) override {
    std::map<std::string, std::string> holders;
    for (const auto& worker : cluster.workers) {
      for (const auto& [job, attempt] : worker->attempts()) {
        if (!worker->BelievesToHold(attempt)) continue;
        const auto [other, first] = holders.emplace(job, worker->node.name);
        if (first) continue;
        cluster.universe->Fail(
            "one_lease", absl::StrCat(job, " is trained by ", other->second, " and by ",
                                      worker->node.name, " under epoch ", attempt.lease.epoch()));
      }
    }
  }

  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutJob>(&write);
    if (put == nullptr) return;
    int open = 0;
    for (const v1::Attempt& attempt : put->record->job.attempts())
      open += attempt.has_end_time() ? 0 : 1;
    const bool leased = put->record->job.state() == v1::JOB_STATE_RUNNING ||
                        put->record->job.state() == v1::JOB_STATE_CANCELLING;
    if (open != (leased ? 1 : 0)) {
      cluster.universe->Fail(
          "one_lease", absl::StrCat(open, " open attempts: ", put->record->job.ShortDebugString()));
    }
  }
};

}  // namespace

std::unique_ptr<Invariant> OneLease() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
