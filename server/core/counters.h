// What the core counts, from zero with each process.
#pragma once

#include <cstdint>
#include <map>

#include "octavo/v1/job.pb.h"

namespace octavo::core {

struct Counters {
  int64_t attempts_started = 0;
  std::map<v1::FailureCause, int64_t> attempts_failed;
  int64_t fenced = 0;  // facts refused under an old epoch
  int64_t submits = 0;
  int64_t repeated_submits = 0;

  void Add(const Counters& other) {
    attempts_started += other.attempts_started;
    for (const auto& [cause, count] : other.attempts_failed) attempts_failed[cause] += count;
    fenced += other.fenced;
    submits += other.submits;
    repeated_submits += other.repeated_submits;
  }
};

}  // namespace octavo::core
