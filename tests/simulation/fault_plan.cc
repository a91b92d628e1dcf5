#include "tests/simulation/fault_plan.h"

namespace octavo::simulation {

FaultPlan DrawFaultPlan(Random* random) {
  FaultPlan plan;
  const auto sometimes = [random] { return random->Chance(0.5); };
  if (sometimes()) plan.drop = random->Fraction() * 0.3;
  if (sometimes()) plan.duplicate = random->Fraction() * 0.3;
  if (sometimes()) plan.longest_delay = random->Between(absl::Milliseconds(50), absl::Seconds(12));
  if (sometimes()) plan.clock_drift = 0.1;
  if (sometimes()) plan.longest_sync = random->Between(absl::Milliseconds(5), absl::Seconds(1));
  if (sometimes()) plan.failed_sync = random->Fraction() * 0.1;
  const absl::Duration often = absl::Seconds(5), seldom = absl::Seconds(40);
  if (sometimes()) plan.worker_crash_every = random->Between(often, seldom);
  if (sometimes()) plan.coordinator_crash_every = random->Between(often, seldom);
  // Rarely, since little else happens while it lasts.
  if (random->Chance(0.25)) plan.disk_full_every = random->Between(often, absl::Minutes(2));
  if (sometimes()) plan.pause_every = random->Between(often, seldom);
  if (sometimes()) plan.partition_every = random->Between(often, seldom);
  if (sometimes()) plan.trainer_crash = random->Fraction() * 0.05;
  if (sometimes()) plan.silent_close = random->Fraction();
  return plan;
}

FaultPlan OnlyAFullDisk() {
  FaultPlan plan;
  plan.only_full_disk = true;
  plan.disk_full_every = absl::Seconds(60);
  return plan;
}

}  // namespace octavo::simulation
