// The one thread that owns the core and the store. Everything that reads or changes jobs passes
// through its queue.
//
// It drains the queue in batches: applies every event, commits all their writes in one transaction,
// and only then lets answers and signals go and runs the reads. When a commit fails, every answer
// of the batch is that error and the core is built anew from the store, so that memory never runs
// ahead of the disk.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/reply.h"
#include "server/core/core.h"
#include "server/rpc/inspections.h"
#include "server/rpc/subscriptions.h"
#include "server/storage/store.h"
#include "server/telemetry/snapshot.h"

namespace octavo::rpc {

struct CoreLoopOptions {
  core::Settings core;
  absl::Duration tick = absl::Milliseconds(200);
  absl::Duration series_retention = absl::Seconds(60);  // of an ended job in Prometheus
  int64_t queue_limit = 10000;                          // requests that wait
  int64_t queue_bytes_limit = int64_t{64} << 20;        // and their size
  int64_t batch_limit = 512;                            // events of one transaction
  int64_t inspection_limit = 64;
};

class CoreLoop {
 public:
  // What a request may use while it runs on the loop's thread.
  struct Context {
    const core::Core& core;
    storage::Store& store;
    JobListeners& job_listeners;
    Sessions& sessions;
    Inspections& inspections;
  };
  using Answered = Reply<core::AnswerBody>;
  // Makes the event from the state before it, or refuses the request.
  using MakeEvent = absl::AnyInvocable<absl::StatusOr<core::EventBody>(Context&)>;
  // Gets the committed state, or why there is none: the queue is full or the loop has stopped.
  using Read = absl::AnyInvocable<void(absl::StatusOr<Context*>)>;

  // Of a request, as it waits. An unserved request is answered DEADLINE_EXCEEDED once the clock
  // passes `deadline`.
  struct Cost {
    absl::Duration deadline = absl::InfiniteDuration();
    int64_t bytes = 0;
  };

  // `clock` outlives the loop.
  static absl::StatusOr<std::unique_ptr<CoreLoop>> Start(const CoreLoopOptions& options,
                                                         std::unique_ptr<storage::Store> store,
                                                         const Clock* clock);
  ~CoreLoop();
  CoreLoop(const CoreLoop&) = delete;
  CoreLoop& operator=(const CoreLoop&) = delete;

  // Serves what is queued, then ends the thread. Requests that come later are answered UNAVAILABLE.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // RESOURCE_EXHAUSTED when the queue is full.
  void Post(core::EventBody event, Cost cost, Answered answered) ABSL_LOCKS_EXCLUDED(mutex_);
  void PostPrepared(MakeEvent make, Cost cost, Answered answered) ABSL_LOCKS_EXCLUDED(mutex_);
  void PostRead(Read read) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until the loop has described itself; `rpcs` is left empty. Not for the loop's own
  // thread.
  absl::StatusOr<telemetry::Snapshot> TakeSnapshot();

 private:
  struct Item {
    MakeEvent make;  // of an event
    Answered answered{nullptr};
    Read read;  // of a read
    Cost cost;
  };
  struct Batch;

  CoreLoop(const CoreLoopOptions& options, std::unique_ptr<storage::Store> store,
           const Clock* clock);
  void Enqueue(Item item) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Item> Wait() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  // On the loop's thread only.
  absl::Status Recover();
  void RunBatch(std::vector<Item> items);
  void Apply(core::EventBody body, Answered answered, Batch* batch);
  absl::Status Commit(const Batch& batch);
  void Release(Batch batch);
  void PublishNews(const core::Effects& effects);
  void TickIfDue(Batch* batch);
  void Sweep();
  telemetry::Snapshot Describe();
  Context MakeContext();

  const CoreLoopOptions options_;
  const Clock* const clock_;

  // Owned by the loop's thread.
  const std::unique_ptr<storage::Store> store_;
  std::unique_ptr<core::Core> core_;  // null while the store cannot be read
  JobListeners job_listeners_;
  Sessions sessions_;
  Inspections inspections_;
  telemetry::LatestMetrics latest_;
  telemetry::Histogram commit_seconds_;
  int64_t commit_failures_ = 0;
  absl::Duration next_tick_ = -absl::InfiniteDuration();

  absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace octavo::rpc
