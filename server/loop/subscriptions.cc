#include "server/loop/subscriptions.h"

#include <utility>

namespace octavo::loop {

// A job that waits gets its reason; any other is the record itself, without a copy.
std::shared_ptr<const v1::Job> Described(const core::Core& core, const core::JobPointer& record) {
  if (record->job.state() == v1::JOB_STATE_PENDING) {
    return std::make_shared<const v1::Job>(core.Describe(*record));
  }
  return std::shared_ptr<const v1::Job>(record, &record->job);
}

std::vector<std::string> JobListeners::JobIds() const {
  std::vector<std::string> ids;
  for (const auto& [job_id, listeners] : listeners_) ids.push_back(job_id);
  return ids;
}

void JobListeners::Add(const std::string& job_id, std::weak_ptr<JobListener> listener) {
  listeners_[job_id].push_back(std::move(listener));
}

void JobListeners::Publish(const JobNews& news) {
  const auto found = listeners_.find(news.job->id());
  if (found == listeners_.end()) return;
  for (const std::weak_ptr<JobListener>& entry : found->second) {
    if (const std::shared_ptr<JobListener> listener = entry.lock()) listener->OnNews(news);
  }
}

void JobListeners::Sweep() {
  for (auto& [job_id, listeners] : listeners_) {
    std::erase_if(listeners, [](const auto& entry) { return entry.expired(); });
  }
  std::erase_if(listeners_, [](const auto& entry) { return entry.second.empty(); });
}

void Sessions::Open(const v1::WorkerIdentity& worker, const std::shared_ptr<SessionSink>& sink) {
  sessions_[{worker.worker_id(), worker.incarnation()}] = {sink, sink.get()};
}

bool Sessions::Close(const v1::WorkerIdentity& worker, const SessionSink* sink) {
  const auto found = sessions_.find({worker.worker_id(), worker.incarnation()});
  if (found == sessions_.end() || found->second.address != sink) return false;
  sessions_.erase(found);
  return true;
}

bool Sessions::Send(const v1::WorkerIdentity& worker, v1::SessionResponse message) {
  const auto found = sessions_.find({worker.worker_id(), worker.incarnation()});
  if (found == sessions_.end()) return false;
  const std::shared_ptr<SessionSink> sink = found->second.sink.lock();
  if (sink == nullptr) return false;
  sink->Send(std::move(message));
  return true;
}

std::optional<v1::WorkerIdentity> Sessions::Find(const std::string& worker_id) const {
  const auto found = sessions_.lower_bound({worker_id, ""});
  if (found == sessions_.end() || found->first.first != worker_id) return std::nullopt;
  v1::WorkerIdentity identity;
  identity.set_worker_id(worker_id);
  identity.set_incarnation(found->first.second);
  return identity;
}

}  // namespace octavo::loop
