// Answers the coordinator's questions about specs, one at a time, each by a process of its own: a
// broken model folder may not take the agent down.
#pragma once

#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "octavo/v1/worker.pb.h"
#include "worker/agent/child.h"
#include "worker/agent/config.h"
#include "worker/agent/coordinator.h"

namespace octavo::agent {

class Inspector {
 public:
  // The pointers outlive the inspector.
  Inspector(const Config* config, v1::WorkerIdentity worker, Coordinator* coordinator,
            const Clock* clock);
  ~Inspector();  // kills a running inspection

  // Dropped when the queue is full: whoever asked has a deadline and says so.
  void Add(v1::Inspect inspect);

 private:
  void Run();
  v1::ReportInspectionRequest Answer(const v1::Inspect& inspect);

  const Config* const config_;
  const v1::WorkerIdentity worker_;
  Coordinator* const coordinator_;
  const Clock* const clock_;
  StopFlag stop_;

  absl::Mutex mutex_;
  std::deque<v1::Inspect> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace octavo::agent
