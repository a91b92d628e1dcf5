// What was decided since the last commit, laid over the committed jobs. Decisions look through it
// and write into it; a commit swaps its records into the jobs and a failed write drops it, so that
// nothing which the disk does not hold ever reaches the jobs or the fleet.
//
// It fills request by request: between two EndRequest, the records that Change and Add give may be
// written; after it they are versions that never change.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/core/counters.h"
#include "server/core/events.h"
#include "server/core/fleet.h"
#include "server/core/jobs.h"

namespace octavo::core {

class Overlay {
 public:
  explicit Overlay(const Jobs* jobs) : jobs_(jobs) {}

  // As decided, else as committed. Null when there is none.
  JobPointer Find(const std::string& job_id) const;
  const PutRequest* FindRequest(const std::string& request_id) const;
  LogCursor CursorOf(const std::string& job_id) const;
  int64_t PendingCount() const;

  // The record to write instead of `record`, which is the newest of its job.
  JobRecord* Change(const JobPointer& record);
  // A new job, the last in the order of submission. There is none of that id yet.
  JobRecord* Add(const std::string& job_id);
  void Put(PutRequest request);
  void Put(PutMetrics metrics);
  void Put(PutLogs logs);
  void Grant(const JobRecord& record, Lease lease);

  // Versions grow and the records are written. What was decided for the next request comes later.
  void EndRequest();

  Counters counters;  // what a commit adds

  // In the order in which a store must apply them: jobs come before what refers to them.
  const std::vector<Write>& writes() const { return writes_; }
  // By order: the newest record of every changed job, and the newest lease granted to it.
  const std::map<int64_t, JobPointer>& changed() const { return changed_; }
  const std::map<int64_t, Lease>& grants() const { return grants_; }

  void Clear() { *this = Overlay(jobs_); }

 private:
  const Jobs* jobs_;
  std::map<int64_t, JobPointer> changed_;
  std::unordered_map<std::string, int64_t> added_;  // job ids, orders
  std::unordered_map<std::string, PutRequest> requests_;
  std::unordered_map<std::string, LogCursor> cursors_;
  std::map<int64_t, Lease> grants_;
  std::vector<Write> writes_;
  int64_t pending_change_ = 0;  // of the number of pending jobs

  // Of the present request.
  std::map<int64_t, std::shared_ptr<JobRecord>> open_;
  std::vector<Write> open_writes_;
};

}  // namespace octavo::core
