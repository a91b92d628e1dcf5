#include "server/core/overlay.h"

#include <utility>

#include "base/status.h"

namespace octavo::core {

JobPointer Overlay::Find(const std::string& job_id) const {
  const auto find_decided = [this](int64_t order) -> JobPointer {
    if (const auto open = open_.find(order); open != open_.end()) return open->second;
    const auto changed = changed_.find(order);
    return changed == changed_.end() ? nullptr : changed->second;
  };
  if (const auto added = added_.find(job_id); added != added_.end()) {
    return find_decided(added->second);
  }
  JobPointer committed = jobs_->Find(job_id);
  if (committed == nullptr) return nullptr;
  JobPointer decided = find_decided(committed->order);
  return decided == nullptr ? committed : decided;
}

const PutRequest* Overlay::FindRequest(const std::string& request_id) const {
  const auto found = requests_.find(request_id);
  return found == requests_.end() ? jobs_->FindRequest(request_id) : &found->second;
}

LogCursor Overlay::CursorOf(const std::string& job_id) const {
  if (const auto found = cursors_.find(job_id); found != cursors_.end()) return found->second;
  const LogCursor* const committed = jobs_->FindCursor(job_id);
  return committed == nullptr ? LogCursor{.job_id = job_id} : *committed;
}

int64_t Overlay::PendingCount() const {
  return jobs_->Count(v1::JOB_STATE_PENDING) + pending_change_;
}

JobRecord* Overlay::Change(const JobPointer& record) {
  std::shared_ptr<JobRecord>& open = open_[record->order];
  if (open == nullptr) open = std::make_shared<JobRecord>(*record);
  return open.get();
}

JobRecord* Overlay::Add(const std::string& job_id) {
  CHECK(Find(job_id) == nullptr);
  int64_t order = jobs_->next_order();
  if (!changed_.empty()) order = std::max(order, changed_.rbegin()->first + 1);
  auto record = std::make_shared<JobRecord>();
  record->job.set_id(job_id);
  record->order = order;
  open_[order] = record;
  added_[job_id] = order;
  return record.get();
}

void Overlay::Put(PutRequest request) {
  requests_[request.request_id] = request;
  open_writes_.push_back(std::move(request));
}

void Overlay::Put(PutMetrics metrics) { open_writes_.push_back(std::move(metrics)); }

void Overlay::Put(PutLogs logs) {
  cursors_[logs.cursor.job_id] = logs.cursor;
  open_writes_.push_back(std::move(logs));
}

void Overlay::Grant(const JobRecord& record, Lease lease) {
  grants_[record.order] = std::move(lease);
}

void Overlay::EndRequest() {
  const auto is_pending = [](const JobPointer& record) {
    return record != nullptr && record->job.state() == v1::JOB_STATE_PENDING ? 1 : 0;
  };
  for (auto& [order, record] : open_) {
    record->job.set_version(record->job.version() + 1);
    JobPointer& newest = changed_[order];
    pending_change_ -= is_pending(newest == nullptr ? jobs_->Find(order) : newest);
    newest = record;
    pending_change_ += is_pending(newest);
    writes_.push_back(PutJob{record});
  }
  open_.clear();
  std::move(open_writes_.begin(), open_writes_.end(), std::back_inserter(writes_));
  open_writes_.clear();
}

}  // namespace octavo::core
