// Who wants to hear from the core. All of it belongs to whoever runs the loop's passes; receivers
// are held weakly, so that one that went away costs nothing but its entry until the next message.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/v1/job.pb.h"
#include "octavo/v1/worker.pb.h"
#include "server/core/core.h"

namespace octavo::loop {

struct JobNews {
  std::shared_ptr<const v1::Job> job;  // as described; shared by every receiver of the message
  int64_t first_metric_step = 0;       // the lowest step with new points; 0: none
};

// The committed job as a reader sees it.
std::shared_ptr<const v1::Job> Described(const core::Core& core, const core::JobPointer& record);

// Is called in a pass of the loop: it takes the message and returns at once.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void OnNews(const JobNews& news) = 0;
};

class JobListeners {
 public:
  void Add(const std::string& job_id, std::weak_ptr<JobListener> listener);
  bool HasListeners(const std::string& job_id) const { return listeners_.contains(job_id); }
  std::vector<std::string> JobIds() const;
  void Publish(const JobNews& news);
  // Drops the entries of listeners that went away.
  void Sweep();

 private:
  std::map<std::string, std::vector<std::weak_ptr<JobListener>>> listeners_;
};

class SessionSink {
 public:
  virtual ~SessionSink() = default;
  // Never blocks; may drop the message when the worker does not read.
  virtual void Send(v1::SessionResponse message) = 0;
};

// The open sessions by worker id and incarnation: one that an outdated process opens does not
// disturb its successor's.
class Sessions {
 public:
  // Replaces the former session of the same incarnation.
  void Open(const v1::WorkerIdentity& worker, const std::shared_ptr<SessionSink>& sink);
  // False when `sink` is not that incarnation's session any more.
  bool Close(const v1::WorkerIdentity& worker, const SessionSink* sink);
  // False when that incarnation has no session.
  bool Send(const v1::WorkerIdentity& worker, v1::SessionResponse message);
  // An incarnation of the worker with a session.
  std::optional<v1::WorkerIdentity> Find(const std::string& worker_id) const;

 private:
  using Key = std::pair<std::string, std::string>;
  struct Session {
    std::weak_ptr<SessionSink> sink;
    const SessionSink* address;  // compared only
  };
  std::map<Key, Session> sessions_;
};

}  // namespace octavo::loop
