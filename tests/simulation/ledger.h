// What the outside world may rely on: storage that workers share, and everything that was
// acknowledged to somebody.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace octavo::simulation {

// A complete checkpoint folder. `parent` is the one its attempt had last begun from or written.
struct StoredFolder {
  std::string job_id;
  int64_t step = 0;
  std::string parent;  // empty: the beginning
};
using Storage = std::map<std::string, StoredFolder>;

using AttemptKey = std::pair<std::string, int64_t>;  // job, epoch

struct Ledger {
  std::map<std::string, std::string> submits;  // request_id -> job
  std::set<std::string> cancels;               // jobs
  std::set<AttemptKey> finishes;
  std::map<std::string, int64_t> commits;              // job -> newest acknowledged step
  std::map<AttemptKey, int64_t> log_lines;             // how many
  std::set<std::tuple<std::string, int64_t>> metrics;  // job, step
};

// Bugs planted in the simulated shell and agent, to see that the invariants have teeth.
struct Flaws {
  bool answers_before_durable = false;
  bool trainers_outlive_their_lease = false;
  bool leases_count_from_receipt = false;
};

}  // namespace octavo::simulation
