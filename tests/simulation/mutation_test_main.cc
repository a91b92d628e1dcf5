// Linked with one line of the coordinator changed: the simulation must notice.
//
//   mutation_NAME [seeds]     0 when a seed within the first so many (200) violates an invariant
#include <cstdlib>
#include <iostream>

#include "tests/simulation/simulation.h"

int main(int argc, char** argv) {
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const octavo::simulation::RunResult result =
        octavo::simulation::Simulate({.seed = seed, .flaws = {}});
    if (!result.violation) continue;
    std::cout << "found by seed " << seed << ", " << result.violation->invariant << ": "
              << result.violation->message << "\n";
    return 0;
  }
  std::cout << seeds << " seeds did not notice\n";
  return 1;
}
