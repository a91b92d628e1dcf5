// One coordinator, some workers and clients, and what watches over them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/client.h"
#include "tests/simulation/coordinator.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/universe.h"
#include "tests/simulation/worker.h"

namespace octavo::simulation {

class Invariant;

class Cluster {
 public:
  Cluster(Universe* universe, const Flaws& flaws);
  ~Cluster();

  // Begins the faults; they end by themselves at `until`.
  void ScheduleFaults(absl::Duration until);
  void Heal();
  bool Finished() const;  // every client is answered, every job terminal on the disk
  void AfterEvent();
  void AtEnd();
  std::string Unfinished() const;

  Universe* const universe;
  Ledger ledger;
  Storage storage;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::unique_ptr<Client>> clients;

 private:
  void MakeWorkers(const Flaws& flaws, const core::Settings& settings);
  void MakeClients();
  Client::Plan DrawClientPlan(int number);
  // `fault` again and again, exponentially distributed around `mean`.
  void Repeat(absl::Duration mean, absl::Duration until, std::function<void()> fault);
  Node* AnyNode();
  void Partition(absl::Duration until);
  void Signal(const core::Signal& signal);

  std::vector<std::unique_ptr<Invariant>> invariants_;
};

}  // namespace octavo::simulation
