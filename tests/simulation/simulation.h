// One run: faults for a while, then good weather, in which everything must end within a bounded
// time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/ledger.h"
#include "tests/simulation/universe.h"

namespace octavo::simulation {

struct RunOptions {
  uint64_t seed = 0;
  bool print_trace = false;
  bool only_full_disk = false;  // the only fault
  Flaws flaws;
};

struct RunResult {
  std::optional<Violation> violation;
  std::vector<std::string> last_lines;  // of the trace, oldest first
  uint64_t trace_hash = 0;
  int64_t events = 0;
  absl::Duration ended;                 // virtual time
  std::map<std::string, int64_t> ends;  // jobs by final state
  int64_t attempts = 0;
  int64_t fenced = 0;  // by the last coordinator process
};

RunResult Simulate(const RunOptions& options);

// Seeds of regressions.txt: the first word of each line that does not begin with '#'.
std::vector<uint64_t> RegressionSeeds(const std::string& path);

}  // namespace octavo::simulation
