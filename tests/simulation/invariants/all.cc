#include "tests/simulation/invariant.h"

namespace octavo::simulation {

std::vector<std::unique_ptr<Invariant>> AllInvariants() {
  std::vector<std::unique_ptr<Invariant>> all;
  for (const auto make :
       {OneLease, OneLineage, NothingLost, TerminalStatesAreFinal, OneOutcome, RestartBudget,
        LogOffsets, DeviceBooking, RebuildsEqual, HeartbeatsAreAnswered, AFullDiskIsPatient}) {
    all.push_back(make());
  }
  return all;
}

bool IsTerminal(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

}  // namespace octavo::simulation
