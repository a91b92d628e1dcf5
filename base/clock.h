// Time as a dependency. Nothing outside `main` and tests may read the time in another way, so that
// a simulation can own it.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace octavo {

class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time, for people and records.
  virtual absl::Time Now() const = 0;
  // Monotonic time since an arbitrary start: the only one that leases and deadlines are measured
  // with.
  virtual absl::Duration Monotonic() const = 0;
};

// The machine's clocks. CLOCK_BOOTTIME for the monotonic one, so that a suspended machine sees its
// lease lapse.
class SystemClock final : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
};

// Moves only when told to.
class SimulatedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch() + absl::Hours(480000) + elapsed_; }
  absl::Duration Monotonic() const override { return elapsed_; }
  void Advance(absl::Duration by) { elapsed_ += by; }

 private:
  absl::Duration elapsed_ = absl::ZeroDuration();
};

}  // namespace octavo
