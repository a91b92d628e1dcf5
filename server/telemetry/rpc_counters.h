// Answered calls by method and code. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace octavo::telemetry {

class RpcCounters {
 public:
  // Method ("JobService/SubmitJob") and code. Both sets are small and fixed, so the series are
  // bounded.
  using Counts = std::map<std::pair<std::string, absl::StatusCode>, int64_t>;

  void Count(const std::string& method, absl::StatusCode code) {
    absl::MutexLock lock(&mutex_);
    ++counts_[{method, code}];
  }
  Counts counts() const {
    absl::MutexLock lock(&mutex_);
    return counts_;
  }

 private:
  mutable absl::Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::telemetry
