// No job is restarted more often than its spec allows, and epochs count its attempts.
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutJob>(&write);
    if (put == nullptr) return;
    const v1::Job& job = put->record->job;
    if (job.attempts_size() <= job.spec().retries().max_restarts() + 1 &&
        job.epoch() == job.attempts_size()) {
      return;
    }
    cluster.universe->Fail("restart_budget", job.ShortDebugString());
  }
};

}  // namespace

std::unique_ptr<Invariant> RestartBudget() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
