// Where nothing but the disk of the coordinator fails, no job loses its lease or an attempt.
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutJob>(&write);
    if (put == nullptr || !cluster.universe->faults.only_full_disk) return;
    const v1::Job& job = put->record->job;
    if (job.attempts_size() <= 1 && job.state() != v1::JOB_STATE_FAILED) return;
    cluster.universe->Fail("full_disk", job.ShortDebugString());
  }
};

}  // namespace

std::unique_ptr<Invariant> AFullDiskIsPatient() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
