// The committed checkpoints of a job are one chain: each was trained from the one committed before
// it. What a job may need lies on the shared storage, and at the end nothing else does that was
// ever committed.
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutJob>(&write);
    if (put == nullptr) return;
    const v1::Job& job = put->record->job;
    std::string& newest = newest_[job.id()];
    if (job.checkpoint().folder() != newest) {
      const auto stored = cluster.storage.find(job.checkpoint().folder());
      if (stored != cluster.storage.end() && stored->second.parent != newest) {
        cluster.universe->Fail(
            "one_lineage", absl::StrCat(stored->first, " descends from '", stored->second.parent,
                                        "', not from '", newest, "'"));
      }
      newest = job.checkpoint().folder();
      ever_.insert(newest);
    }
    if (job.has_checkpoint() && cluster.storage.count(newest) == 0) {
      cluster.universe->Fail("one_lineage",
                             absl::StrCat("the newest checkpoint is gone: ", newest));
    }
  }

  void AtEnd(const Cluster& cluster) override {
    for (const auto& [id, record] : cluster.coordinator->disk.jobs) {
      for (const v1::Checkpoint& checkpoint : record->job.checkpoints()) {
        ever_.erase(checkpoint.folder());
      }
      const int32_t keep = record->job.spec().stages(0).checkpoint().keep();
      if (record->job.state() != v1::JOB_STATE_SUCCEEDED) continue;
      const int64_t steps = record->job.spec().stages(0).steps();
      if (record->job.checkpoint().step() != steps) {
        cluster.universe->Fail("one_lineage", absl::StrCat(id, " succeeded without its last step"));
      }
      for (int i = std::max(0, record->job.checkpoints_size() - keep);
           i < record->job.checkpoints_size(); ++i) {
        if (cluster.storage.count(record->job.checkpoints(i).folder()) > 0) continue;
        cluster.universe->Fail(
            "one_lineage", absl::StrCat("kept, but gone: ", record->job.checkpoints(i).folder()));
      }
    }
    for (const std::string& forgotten : ever_) {
      if (cluster.storage.count(forgotten) == 0) continue;
      cluster.universe->Fail("one_lineage", absl::StrCat("never removed: ", forgotten));
    }
  }

 private:
  std::map<std::string, std::string> newest_;  // by job
  std::set<std::string> ever_;
};

}  // namespace

std::unique_ptr<Invariant> OneLineage() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
