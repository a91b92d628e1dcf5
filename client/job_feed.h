// A job's changes and metric points, as they come, in one queue.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/client.h"
#include "client/stream.h"

namespace octavo::client {

class JobFeed {
 public:
  struct Notice {
    std::string text;  // about the connection
  };
  struct End {
    absl::Status status;  // of the stream of changes
  };
  using Event = std::variant<v1::Job, v1::MetricPoints, Notice, End>;

  struct Options {
    std::string job_id;
    absl::Duration patience;
  };
  // Starts two threads that read until the job has ended.
  JobFeed(Client* client, const Options& options);
  // Cancels what is still being read.
  ~JobFeed();
  JobFeed(const JobFeed&) = delete;
  JobFeed& operator=(const JobFeed&) = delete;

  // The next event, or nothing within `patience`. End is the last one; it comes after every change
  // and every point.
  std::optional<Event> Next(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Waits while the queue is full.
  void Push(Event event) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadChanges(const Options& options);
  void ReadPoints(const Options& options);

  Client* const client_;
  Interruption stop_changes_;
  Interruption stop_points_;

  absl::Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // nobody takes events any more

  std::thread points_;
  std::thread changes_;  // joins points_ before it ends
};

}  // namespace octavo::client
