// A request_id made at most one job, and every job was made by a request.
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutRequest>(&write);
    if (put == nullptr) return;
    const auto [known, first] = jobs_.emplace(put->request_id, put->job_id);
    if (first && cluster.coordinator->disk.jobs.count(put->job_id) > 0) return;
    cluster.universe->Fail("one_outcome", absl::StrCat(put->request_id, " made ", known->second,
                                                       " and ", put->job_id));
  }
  void AtEnd(const Cluster& cluster) override {
    if (jobs_.size() == cluster.coordinator->disk.jobs.size()) return;
    cluster.universe->Fail("one_outcome",
                           absl::StrCat(jobs_.size(), " requests made ",
                                        cluster.coordinator->disk.jobs.size(), " jobs"));
  }

 private:
  std::map<std::string, std::string> jobs_;  // by request
};

}  // namespace

std::unique_ptr<Invariant> OneOutcome() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
