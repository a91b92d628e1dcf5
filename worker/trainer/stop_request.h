// The wish that a trainer ends, and since when.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace octavo::trainer {

class StopRequest {
 public:
  // Async-signal-safe. `now`: nanoseconds of CLOCK_BOOTTIME, as Clock::Monotonic. Only the first
  // call counts.
  void Set(int64_t now_nanoseconds) {
    int64_t none = kNone;
    since_.compare_exchange_strong(none, now_nanoseconds);
  }
  bool set() const { return since_.load() != kNone; }
  absl::Duration since() const { return absl::Nanoseconds(since_.load()); }

 private:
  static constexpr int64_t kNone = INT64_MIN;
  std::atomic<int64_t> since_{kNone};
  static_assert(std::atomic<int64_t>::is_always_lock_free);
};

}  // namespace octavo::trainer
