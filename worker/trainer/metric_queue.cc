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
  if (failed_.ok()) waiting_.push_back(std::move(points));
  return failed_;
}

bool MetricQueue::AwaitRoom(absl::Duration time_limit) {
  absl::MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || waiting_.size() < most_steps_;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&has_room), time_limit);
}

absl::Status MetricQueue::Flush() {
  AwaitSent(absl::InfiniteDuration());
  absl::MutexLock lock(&mutex_);
  return failed_;
}

bool MetricQueue::AwaitSent(absl::Duration time_limit) {
  absl::MutexLock lock(&mutex_);
  const int64_t wanted = sent_ + static_cast<int64_t>(waiting_.size());
  const auto sent = [this, wanted]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || sent_ >= wanted;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&sent), time_limit);
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
    if (!sent.ok()) continue;
    waiting_.pop_front();
    ++sent_;
  }
}

}  // namespace octavo::trainer
