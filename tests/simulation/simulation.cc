#include "tests/simulation/simulation.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/simulation/cluster.h"

namespace octavo::simulation {
namespace {

// A job of the largest kind takes 150 steps of 0.6 s, 24 of them one after another 36 minutes, and
// a restart waits at most a minute.
constexpr absl::Duration kLivenessBound = absl::Minutes(60);
constexpr absl::Duration kDrain = absl::Seconds(40);  // longer than two leases

bool RunUntil(Universe* universe, Cluster* cluster, absl::Duration until, bool stop_when_finished) {
  while (universe->now() < until) {
    if (!universe->Step()) return false;
    cluster->AfterEvent();
    if (stop_when_finished && cluster->Finished()) break;
  }
  return !universe->violation();
}

void RunPhases(Universe* universe, Cluster* cluster) {
  const absl::Duration faults_end = universe->random.Between(absl::Seconds(60), absl::Seconds(200));
  cluster->ScheduleFaults(faults_end);
  if (!RunUntil(universe, cluster, faults_end, false)) return;
  cluster->Heal();
  const absl::Duration deadline = universe->now() + kLivenessBound;
  if (!RunUntil(universe, cluster, deadline, true)) return;
  if (!cluster->Finished()) {
    universe->Fail("liveness", absl::StrCat("not ended in good weather: ", cluster->Unfinished()));
    return;
  }
  if (!RunUntil(universe, cluster, universe->now() + kDrain, false)) return;
  cluster->AtEnd();
}

}  // namespace

RunResult Simulate(const RunOptions& options) {
  Universe universe({.seed = options.seed,
                     .print_trace = options.print_trace,
                     .only_full_disk = options.only_full_disk});
  Cluster cluster(&universe, options.flaws);
  RunPhases(&universe, &cluster);
  RunResult result;
  result.violation = universe.violation();
  result.last_lines.assign(universe.last_lines().begin(), universe.last_lines().end());
  result.trace_hash = universe.trace_hash();
  result.events = universe.events();
  result.ended = universe.now();
  for (const auto& [id, record] : cluster.coordinator->disk.jobs) {
    ++result.ends[v1::JobState_Name(record->job.state())];
    result.attempts += record->job.attempts_size();
  }
  if (cluster.coordinator->core() != nullptr) {
    result.fenced = cluster.coordinator->core()->counters().fenced;
  }
  return result;
}

std::vector<uint64_t> RegressionSeeds(const std::string& path) {
  std::vector<uint64_t> seeds;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') seeds.push_back(std::strtoull(line.c_str(), nullptr, 10));
  }
  return seeds;
}

}  // namespace octavo::simulation
