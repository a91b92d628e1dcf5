// simulation --seed=N [--trace]        one run
// simulation --from=A --count=N        many; stops at the first that violates an invariant
#include <CLI/CLI.hpp>
#include <iostream>

#include "tests/simulation/simulation.h"

namespace {

using octavo::simulation::RunResult;
using octavo::simulation::Simulate;

void Print(uint64_t seed, const RunResult& result) {
  std::cout << "seed " << seed << ": " << result.events << " events in "
            << absl::FormatDuration(result.ended) << ", " << result.attempts << " attempts,";
  for (const auto& [state, count] : result.ends) std::cout << " " << count << " " << state;
  std::cout << ", trace " << std::hex << result.trace_hash << std::dec << "\n";
}

bool RunAndReport(uint64_t seed, bool trace, bool quiet) {
  const RunResult result = Simulate({.seed = seed, .print_trace = trace, .flaws = {}});
  if (!quiet) Print(seed, result);
  if (!result.violation) return true;
  if (!trace) {
    for (const std::string& line : result.last_lines) std::cout << line << "\n";
  }
  std::cout << "seed " << seed << " violates " << result.violation->invariant << ": "
            << result.violation->message << "\n";
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs the coordinator's core under drawn faults in virtual time.");
  uint64_t seed = 0, from = 1, count = 200;
  bool trace = false;
  CLI::Option* const one = app.add_option("--seed", seed, "one run with this seed");
  app.add_flag("--trace", trace, "print every event")->needs(one);
  app.add_option("--from", from, "first seed of many")->excludes(one);
  app.add_option("--count", count, "how many seeds")->excludes(one);
  CLI11_PARSE(app, argc, argv);
  if (*one) return RunAndReport(seed, trace, false) ? 0 : 1;
  for (uint64_t i = 0; i < count; ++i) {
    if (!RunAndReport(from + i, false, true)) return 1;
  }
  std::cout << count << " seeds from " << from << " hold\n";
  return 0;
}
