// A core built from the disk equals the one that wrote it, whenever the disk is up to date.
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

constexpr int kEvery = 64;  // events: the comparison is the dearest one

class Checker final : public Invariant {
 public:
  void AfterEvent(const Cluster& cluster) override {
    const Coordinator& coordinator = *cluster.coordinator;
    if (++events_ % kEvery != 0 || coordinator.core() == nullptr || !coordinator.Idle()) return;
    const auto listed = coordinator.core()->jobs().List(0, 1000, {});
    if (listed.size() != coordinator.disk.jobs.size()) {
      cluster.universe->Fail("rebuilds_equal", "another number of jobs");
    }
    for (const auto& entry : listed) {
      const auto stored = coordinator.disk.jobs.find(entry->job.id());
      if (stored != coordinator.disk.jobs.end() && stored->second->order == entry->order &&
          stored->second->job.SerializeAsString() == entry->job.SerializeAsString()) {
        continue;
      }
      cluster.universe->Fail("rebuilds_equal", entry->job.ShortDebugString());
    }
  }

 private:
  int events_ = 0;
};

}  // namespace

std::unique_ptr<Invariant> RebuildsEqual() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
