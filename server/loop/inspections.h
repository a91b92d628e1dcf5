// Inspections that a worker was asked for and has not reported yet. Belongs to whoever runs
// the loop's passes.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/reply.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::loop {

class Inspections {
 public:
  using Waiting = Reply<v1::ReportInspectionRequest>;

  explicit Inspections(int64_t limit) : limit_(limit) {}

  // The id to send to the worker; empty when `limit` inspections wait already: then `waiting` was
  // answered RESOURCE_EXHAUSTED.
  std::string Begin(absl::Duration deadline, Waiting waiting);
  // Answers whoever waits for it; a report that nobody waits for any more is dropped.
  void Report(const v1::ReportInspectionRequest& report);
  // Answers DEADLINE_EXCEEDED to those whose deadline is not after `now`.
  void Expire(absl::Duration now);

 private:
  struct Entry {
    absl::Duration deadline;
    Waiting waiting;
  };
  const int64_t limit_;
  std::map<std::string, Entry> entries_;
};

}  // namespace octavo::loop
