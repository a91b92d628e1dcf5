// What may go wrong in one run. Which faults exist at all is drawn first: a run with everything at
// once rarely gets far enough to be interesting, and one with nothing finds the bugs of good
// weather.
#pragma once

#include "absl/time/time.h"
#include "tests/simulation/random.h"

namespace octavo::simulation {

struct FaultPlan {
  double drop = 0;                                        // chance that a message is lost
  double duplicate = 0;                                   // chance that it is delivered twice
  absl::Duration longest_delay = absl::Milliseconds(20);  // uniform up to it, so messages overtake
  double clock_drift = 0;  // each node's clock runs at a rate in [1 - drift, 1 + drift]
  absl::Duration longest_sync = absl::Milliseconds(5);  // of one transaction
  double failed_sync = 0;                               // chance that a transaction fails

  // Mean time between two faults of a kind; infinite: never.
  absl::Duration worker_crash_every = absl::InfiniteDuration();
  absl::Duration coordinator_crash_every = absl::InfiniteDuration();
  absl::Duration pause_every = absl::InfiniteDuration();
  absl::Duration partition_every = absl::InfiniteDuration();
  absl::Duration disk_full_every = absl::InfiniteDuration();
  absl::Duration longest_disk_full = absl::Minutes(3);
  absl::Duration longest_pause = absl::Seconds(40);
  absl::Duration longest_partition = absl::Seconds(40);
  absl::Duration longest_outage = absl::Seconds(10);  // from a crash to the next start
  double trainer_crash = 0;                           // chance per step
  bool only_full_disk = false;
  double silent_close = 0;  // chance that the end of a session is not seen when its agent dies
};

FaultPlan DrawFaultPlan(Random* random);
// A disk that is full again and again, and nothing else.
FaultPlan OnlyAFullDisk();

}  // namespace octavo::simulation
