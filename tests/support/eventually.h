// Waiting for the world outside of this process, which announces nothing.
#pragma once

#include <functional>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace octavo::testing_support {

// Looks again and again until `condition` holds; false once `time_limit` has passed.
inline bool Eventually(absl::Duration time_limit, const std::function<bool()>& condition) {
  constexpr absl::Duration kBetweenLooks = absl::Milliseconds(5);
  const absl::Time deadline = absl::Now() + time_limit;
  absl::Mutex mutex;
  bool never = false;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithTimeout(absl::Condition(&never), kBetweenLooks);
  }
  return true;
}

// Long enough for a loaded machine.
inline bool Eventually(const std::function<bool()>& condition) {
  return Eventually(absl::Seconds(20), condition);
}

}  // namespace octavo::testing_support
