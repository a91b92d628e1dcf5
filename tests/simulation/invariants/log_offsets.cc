// Offsets of a job's log have no gap, and each attempt's lines are there once, in order, from its
// first.
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

class Checker final : public Invariant {
 public:
  void Committed(const Cluster& cluster, const core::Write& write) override {
    const auto* put = std::get_if<core::PutLogs>(&write);
    if (put == nullptr) return;
    for (const v1::LogLine& line : put->lines) {
      const int64_t offset = next_offset_[put->cursor.job_id]++;
      const std::string expected = absl::StrCat("line ", next_line_[line.attempt_id()]++);
      if (line.offset() == offset && line.text() == expected) continue;
      cluster.universe->Fail(
          "log_offsets",
          absl::StrCat(line.attempt_id(), ": offset ", line.offset(), " holds '", line.text(),
                       "' where offset ", offset, " and '", expected, "' belong"));
    }
  }

 private:
  std::map<std::string, int64_t> next_offset_;  // by job
  std::map<std::string, int64_t> next_line_;    // by attempt
};

}  // namespace

std::unique_ptr<Invariant> LogOffsets() { return std::make_unique<Checker>(); }

}  // namespace octavo::simulation
