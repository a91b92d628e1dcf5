// Metric points on their way to the agent, so that training does not wait for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "octavo/v1/metric.pb.h"

namespace octavo::trainer {

// Sends what is added in that order, one step after another, from a thread of its own.
class MetricQueue {
 public:
  using Points = std::vector<v1::MetricPoint>;
  using Send = std::function<absl::Status(const Points&)>;

  // `send` is called by one thread at a time. `most_steps`: that may wait before AwaitRoom does.
  MetricQueue(Send send, int64_t most_steps);
  MetricQueue(const MetricQueue&) = delete;
  MetricQueue& operator=(const MetricQueue&) = delete;
  // Drops what waits: whoever wants it sent calls Flush first.
  ~MetricQueue();

  // Does not wait. The first error of `send`, if there was one; then nothing is sent any more.
  absl::Status Add(Points points) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether there is room for one more; false only after `time_limit`. Asked before Add, it bounds
  // the queue.
  bool AwaitRoom(absl::Duration time_limit) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until everything that was added before the call is sent.
  absl::Status Flush() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether Flush would not wait; false only after `time_limit`.
  bool AwaitSent(absl::Duration time_limit) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const Send send_;
  const size_t most_steps_;
  absl::Mutex mutex_;
  std::deque<Points> waiting_ ABSL_GUARDED_BY(mutex_);  // its front is being sent
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;            // steps
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace octavo::trainer
