// Every job as last committed, with what finds it. Durable: a table built from the store equals the
// one whose changes were written there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/core/events.h"

namespace octavo::core {

// RUNNING or CANCELLING: somebody holds a lease of it.
bool IsLeased(const v1::Job& job);
const v1::Attempt& LastAttempt(const v1::Job& job);  // of a job that has one
google::protobuf::Timestamp ToTimestamp(absl::Time time);
absl::Time ToTime(const google::protobuf::Timestamp& timestamp);

class Jobs {
 public:
  // Null when there is none.
  JobPointer Find(const std::string& id) const;
  JobPointer Find(int64_t order) const;
  const PutRequest* FindRequest(const std::string& request_id) const;
  const LogCursor* FindCursor(const std::string& job_id) const;  // of a job that has not ended

  // Newest first, at most `limit`, with order below `before` (0: from the newest); without states:
  // all. O(limit x states x log jobs).
  std::vector<JobPointer> List(int64_t before, int64_t limit,
                               const std::vector<v1::JobState>& states) const;
  // Of the state.
  int64_t Count(v1::JobState state) const;
  // That ended at `time` or later.
  std::vector<JobPointer> EndedSince(absl::Time time) const;
  int64_t next_order() const { return by_order_.empty() ? 1 : by_order_.rbegin()->first + 1; }

  // Replaces the job's record; gives the former one, null for a new job.
  JobPointer Put(JobPointer record);
  void Put(PutRequest request);
  void Put(LogCursor cursor);

 private:
  const std::set<int64_t>& OrdersOf(v1::JobState state) const;

  std::unordered_map<std::string, JobPointer> by_id_;
  std::map<int64_t, JobPointer> by_order_;
  std::map<v1::JobState, std::set<int64_t>> by_state_;  // orders
  std::set<std::pair<absl::Time, int64_t>> by_end_;     // of ended jobs: time, order
  std::unordered_map<std::string, PutRequest> requests_;
  std::unordered_map<std::string, LogCursor> cursors_;
};

}  // namespace octavo::core
