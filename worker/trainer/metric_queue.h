// Metric points on their way to the agent, so that training does not wait for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "octavo/v1/metric.pb.h"

namespace octavo::trainer {

// Sends what is added in that order, one step after another, from a thread of its own.
class MetricQueue {
 public:
  using Points = std::vector<v1::MetricPoint>;
  using Send = std::function<absl::Status(const Points&)>;

  // `send` is called by one thread at a time. `most_steps`: that may wait; more make Add wait.
  MetricQueue(Send send, int64_t most_steps);
  MetricQueue(const MetricQueue&) = delete;
  MetricQueue& operator=(const MetricQueue&) = delete;
  // Drops what waits: whoever wants it sent calls Flush first.
  ~MetricQueue();

  // The first error of `send`, if there was one; then nothing is sent any more.
  absl::Status Add(Points points) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until everything that was added is sent.
  absl::Status Flush() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const Send send_;
  const size_t most_steps_;
  absl::Mutex mutex_;
  std::deque<Points> waiting_ ABSL_GUARDED_BY(mutex_);  // its front is being sent
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace octavo::trainer
