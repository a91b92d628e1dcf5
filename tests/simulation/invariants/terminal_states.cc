// A terminal job never changes again, and versions only grow.
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutJob>(&write);
    if (put == nullptr) return;
    v1::Job& last = last_[put->record->job.id()];
    if (IsTerminal(last) || put->record->job.version() <= last.version()) {
      cluster.universe->Fail("terminal_states", absl::StrCat(last.ShortDebugString(), " became ",
                                                             put->record->job.ShortDebugString()));
    }
    last = put->record->job;
  }

 private:
  std::map<std::string, v1::Job> last_;
};

}  // namespace

std::unique_ptr<Invariant> TerminalStatesAreFinal() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
