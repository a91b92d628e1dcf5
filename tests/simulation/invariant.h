// What must hold at all times, one file each in invariants/. A violated one ends the run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"

namespace octavo::simulation {

class Invariant {
 public:
  virtual ~Invariant() = default;
  virtual void Committed(const Cluster&, const core::Write&) {}  // each durable write, in order
  virtual void CoordinatorStarted(const Cluster&) {}
  // The wait is on the coordinator's clock, its pauses left out.
  virtual void HeartbeatAnswered(const Cluster&, const absl::Status&, absl::Duration) {}
  virtual void AfterEvent(const Cluster&) {}
  virtual void AtEnd(const Cluster&) {}  // after everything was healed and has ended
};

std::unique_ptr<Invariant> OneLease();
std::unique_ptr<Invariant> OneLineage();
std::unique_ptr<Invariant> NothingLost();
std::unique_ptr<Invariant> TerminalStatesAreFinal();
std::unique_ptr<Invariant> OneOutcome();
std::unique_ptr<Invariant> RestartBudget();
std::unique_ptr<Invariant> LogOffsets();
std::unique_ptr<Invariant> DeviceBooking();
std::unique_ptr<Invariant> RebuildsEqual();
std::unique_ptr<Invariant> HeartbeatsAreAnswered();
std::unique_ptr<Invariant> AFullDiskIsPatient();

std::vector<std::unique_ptr<Invariant>> AllInvariants();
bool IsTerminal(const v1::Job& job);

}  // namespace octavo::simulation
