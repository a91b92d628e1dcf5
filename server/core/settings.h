// The times and limits that the core keeps.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace octavo::core {

// A worker's clock may run up to a tenth faster or slower than true time, and so may ours: a lease
// stays exclusive as long as (lease - lease_margin) / 0.9 < (lease + regrant_margin) / 1.1.
struct Settings {
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(15);
  absl::Duration lease_margin = absl::Seconds(3);    // a worker stops this long before its lapse
  absl::Duration regrant_margin = absl::Seconds(2);  // and the coordinator waits this long after it
  absl::Duration unreachable_after = absl::Seconds(5);
  // Doubles per restart without a new checkpoint, up to a minute.
  absl::Duration retry_backoff = absl::Seconds(1);
  // That no longer list a started attempt before it counts as crashed.
  int missing_heartbeats = 5;
  int64_t max_pending_jobs = 10000;
  int64_t max_workers = 10000;
  // Beyond it lines are dropped, and one line says so.
  int64_t max_log_bytes_per_job = int64_t{256} << 20;
};

}  // namespace octavo::core
