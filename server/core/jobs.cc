#include "server/core/jobs.h"

#include <algorithm>

#include "base/status.h"
#include "proto/support/job_state.h"

namespace octavo::core {

bool IsLeased(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_RUNNING || job.state() == v1::JOB_STATE_CANCELLING;
}

const v1::Attempt& LastAttempt(const v1::Job& job) {
  CHECK(job.attempts_size() > 0);
  return job.attempts(job.attempts_size() - 1);
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(absl::ToUnixSeconds(time));
  timestamp.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(timestamp.seconds()))));
  return timestamp;
}

absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

JobPointer Jobs::Find(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

JobPointer Jobs::Find(int64_t order) const {
  const auto found = by_order_.find(order);
  return found == by_order_.end() ? nullptr : found->second;
}

const PutRequest* Jobs::FindRequest(const std::string& request_id) const {
  const auto found = requests_.find(request_id);
  return found == requests_.end() ? nullptr : &found->second;
}

const LogCursor* Jobs::FindCursor(const std::string& job_id) const {
  const auto found = cursors_.find(job_id);
  return found == cursors_.end() ? nullptr : &found->second;
}

const std::set<int64_t>& Jobs::OrdersOf(v1::JobState state) const {
  static const std::set<int64_t> kNone;
  const auto found = by_state_.find(state);
  return found == by_state_.end() ? kNone : found->second;
}

std::vector<JobPointer> Jobs::List(int64_t before, int64_t limit,
                                   const std::vector<v1::JobState>& states) const {
  std::vector<JobPointer> records;
  const auto full = [&] { return static_cast<int64_t>(records.size()) >= limit; };
  if (states.empty()) {
    auto position = before == 0 ? by_order_.end() : by_order_.lower_bound(before);
    while (position != by_order_.begin() && !full()) records.push_back((--position)->second);
    return records;
  }
  // The newest `limit` of each state hold the newest of all of them.
  std::set<int64_t> orders;
  for (const v1::JobState state : states) {
    const std::set<int64_t>& of_state = OrdersOf(state);
    auto position = before == 0 ? of_state.end() : of_state.lower_bound(before);
    for (int64_t taken = 0; position != of_state.begin() && taken < limit; ++taken) {
      orders.insert(*--position);
    }
  }
  for (auto order = orders.rbegin(); order != orders.rend() && !full(); ++order) {
    records.push_back(by_order_.at(*order));
  }
  return records;
}

int64_t Jobs::Count(v1::JobState state) const {
  return static_cast<int64_t>(OrdersOf(state).size());
}

std::vector<JobPointer> Jobs::EndedSince(absl::Time time) const {
  std::vector<JobPointer> records;
  for (auto entry = by_end_.lower_bound({time, 0}); entry != by_end_.end(); ++entry) {
    records.push_back(by_order_.at(entry->second));
  }
  return records;
}

JobPointer Jobs::Put(JobPointer record) {
  const v1::Job& job = record->job;
  JobPointer& place = by_order_[record->order];
  JobPointer former = std::move(place);
  if (former != nullptr) {
    by_state_[former->job.state()].erase(record->order);
  }
  by_state_[job.state()].insert(record->order);
  if (IsTerminal(job.state())) {
    by_end_.emplace(ToTime(job.end_time()), record->order);
    cursors_.erase(job.id());
  }
  by_id_[job.id()] = record;
  place = std::move(record);
  return former;
}

void Jobs::Put(PutRequest request) {
  const std::string id = request.request_id;
  requests_[id] = std::move(request);
}

void Jobs::Put(LogCursor cursor) {
  const JobPointer record = Find(cursor.job_id);
  if (record == nullptr || IsTerminal(record->job.state())) return;
  const std::string id = cursor.job_id;
  cursors_[id] = std::move(cursor);
}

}  // namespace octavo::core
