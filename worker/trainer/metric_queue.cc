#include "worker/trainer/metric_queue.h"

#include <utility>

namespace octavo::trainer {

MetricQueue::MetricQueue(Send send, int64_t most_steps)
    : send_(std::move(send)),
      most_steps_(static_cast<size_t>(most_steps)),
      thread_([this] { Run(); }) {}

MetricQueue::~MetricQueue() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  thread_.join();
}

absl::Status MetricQueue::Add(Points points) {
  absl::MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || waiting_.size() < most_steps_;
  };
  mutex_.Await(absl::Condition(&has_room));
  if (failed_.ok()) waiting_.push_back(std::move(points));
  return failed_;
}

absl::Status MetricQueue::Flush() {
  absl::MutexLock lock(&mutex_);
  const auto sent = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || waiting_.empty();
  };
  mutex_.Await(absl::Condition(&sent));
  return failed_;
}

void MetricQueue::Run() {
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || (failed_.ok() && !waiting_.empty());
  };
  while (true) {
    const Points* next = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (closed_) return;
      next = &waiting_.front();  // stays where it is until this thread removes it
    }
    const absl::Status sent = send_(*next);
    absl::MutexLock lock(&mutex_);
    failed_ = sent;
    if (sent.ok()) waiting_.pop_front();
  }
}

}  // namespace octavo::trainer
