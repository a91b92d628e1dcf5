// What was acknowledged is on the disk: looked up whenever the coordinator starts anew, and at the
// end.
#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void CoordinatorStarted(const Cluster& cluster) override { Check(cluster); }
  void AtEnd(const Cluster& cluster) override { Check(cluster); }

 private:
  static void Lost(const Cluster& cluster, const std::string& what) {
    cluster.universe->Fail("nothing_lost", absl::StrCat("acknowledged and gone: ", what));
  }

  static const v1::Job& JobOf(const Cluster& cluster, const std::string& id) {
    const auto found = cluster.coordinator->disk.jobs.find(id);
    if (found != cluster.coordinator->disk.jobs.end()) return found->second->job;
    Lost(cluster, id);
    return v1::Job::default_instance();
  }

  static void Check(const Cluster& cluster) {
    const testing_support::DurableMap& disk = cluster.coordinator->disk;
    for (const auto& [request, job] : cluster.ledger.submits) {
      const auto stored = disk.requests.find(request);
      if (stored == disk.requests.end()) Lost(cluster, request);
      JobOf(cluster, job);
    }
    for (const std::string& job : cluster.ledger.cancels) {
      const v1::JobState state = JobOf(cluster, job).state();
      if (state == v1::JOB_STATE_CANCELLING || state == v1::JOB_STATE_CANCELLED) continue;
      Lost(cluster, absl::StrCat("cancel of ", job));
    }
    for (const auto& [job, epoch] : cluster.ledger.finishes) {
      bool ended = false;
      for (const v1::Attempt& attempt : JobOf(cluster, job).attempts()) {
        ended |= attempt.epoch() == epoch && attempt.has_end_time();
      }
      if (!ended) Lost(cluster, absl::StrCat("end of ", job, ".", epoch));
    }
    for (const auto& [job, step] : cluster.ledger.commits) {
      if (JobOf(cluster, job).checkpoint().step() < step) {
        Lost(cluster, absl::StrCat("checkpoint ", step, " of ", job));
      }
    }
    CheckTelemetry(cluster, disk);
  }

  static void CheckTelemetry(const Cluster& cluster, const testing_support::DurableMap& disk) {
    for (const auto& [key, acknowledged] : cluster.ledger.log_lines) {
      const std::string attempt = absl::StrCat(key.first, ".", key.second);
      int64_t stored = 0;
      if (const auto logs = disk.logs.find(key.first); logs != disk.logs.end()) {
        for (const auto& [offset, line] : logs->second) stored += line.attempt_id() == attempt;
      }
      if (stored < acknowledged) Lost(cluster, absl::StrCat("log lines of ", attempt));
    }
    for (const auto& [job, step] : cluster.ledger.metrics) {
      const auto metrics = disk.metrics.find(job);
      if (metrics != disk.metrics.end() && metrics->second.count({step, "train/loss"}) > 0)
        continue;
      Lost(cluster, absl::StrCat("metrics of step ", step, " of ", job));
    }
  }
};

}  // namespace

std::unique_ptr<Invariant> NothingLost() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
