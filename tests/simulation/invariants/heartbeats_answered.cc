// A heartbeat that reaches the coordinator is answered at once, whatever the disk does: with OK, or
// with the word that its worker is not registered.
#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

// The transaction that the loop is in, at most a second, and the fifth of a second for which it
// takes a failed one apart, the last of those included.
constexpr absl::Duration kLongestWait = absl::Seconds(4);

class Checker final : public Invariant {
 public:
  void HeartbeatAnswered(const Cluster& cluster, const absl::Status& status,
                         absl::Duration waited) override {
    if (!status.ok() && !absl::IsFailedPrecondition(status)) {
      cluster.universe->Fail("heartbeats_answered", status.ToString());
    }
    if (waited > kLongestWait) {
      cluster.universe->Fail("heartbeats_answered",
                             absl::StrCat("one waited ", absl::FormatDuration(waited)));
    }
  }
};

}  // namespace

std::unique_ptr<Invariant> HeartbeatsAreAnswered() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
