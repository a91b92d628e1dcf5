// Drives the core over a store: takes requests from bounded queues, runs them in passes and lets
// their answers go. It knows no gRPC and no thread: octavod runs its passes on one
// (loop_thread.h), the simulation in virtual time.
//
// A pass has two halves. What only looks at workers and leases (observations) and what only looks
// (control calls) comes first and is answered at once: no disk can delay or refuse it. Then what
// changes jobs is decided, request by request, onto the core's overlay, and all of it is committed
// in one transaction; only then its answers and signals leave. A transaction that fails is taken
// apart and each request tried alone, so that one fails only by its own write.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/reply.h"
#include "server/core/core.h"
#include "server/loop/inspections.h"
#include "server/loop/subscriptions.h"
#include "server/storage/store.h"
#include "server/telemetry/snapshot.h"

namespace octavo::loop {

struct CoreLoopOptions {
  core::Settings core;
  absl::Duration tick = absl::Milliseconds(200);
  absl::Duration series_retention = absl::Seconds(60);  // of an ended job in Prometheus
  int64_t queue_limit = 10000;                          // in each queue, what waits
  int64_t queue_bytes_limit = int64_t{64} << 20;        // and its size
  int64_t batch_limit = 512;                            // requests of one transaction
  int64_t inspection_limit = 64;
};

class CoreLoop {
 public:
  // What a call may use while it runs in a pass.
  struct Context {
    const core::Core& core;
    storage::Store& store;
    JobListeners& job_listeners;
    Sessions& sessions;
    Inspections& inspections;
  };
  using Answered = Reply<core::AnswerBody>;
  // Makes the event from the state before it, or refuses it.
  using MakeObservation = absl::AnyInvocable<absl::StatusOr<core::Observation>(Context&)>;
  using MakeRequest = absl::AnyInvocable<absl::StatusOr<core::Request>(Context&)>;
  // Gets the context, or why there is none: the queue is full or the loop is closed.
  using Control = absl::AnyInvocable<void(absl::StatusOr<Context*>)>;

  // Of what waits. It is answered DEADLINE_EXCEEDED once the clock passes `deadline`.
  struct Cost {
    absl::Duration deadline = absl::InfiniteDuration();
    int64_t bytes = 0;
  };

  // `clock` outlives the loop. Reads the store, so it can fail.
  static absl::StatusOr<std::unique_ptr<CoreLoop>> Open(const CoreLoopOptions& options,
                                                        std::unique_ptr<storage::Store> store,
                                                        const Clock* clock);
  CoreLoop(const CoreLoop&) = delete;
  CoreLoop& operator=(const CoreLoop&) = delete;

  // From any thread. RESOURCE_EXHAUSTED when the queue is full, UNAVAILABLE once it is closed.
  // Observations and control calls have a queue of their own, which bulk does not fill.
  void Observe(MakeObservation make, Cost cost, Answered answered) ABSL_LOCKS_EXCLUDED(mutex_);
  void Observe(core::Observation observation, Cost cost, Answered answered);
  void Decide(MakeRequest make, Cost cost, Answered answered) ABSL_LOCKS_EXCLUDED(mutex_);
  void Decide(core::Request request, Cost cost, Answered answered);
  void Call(Control control) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `read` on the caller's thread, between two changes of the state; it must be short. What it
  // sees holds every event that was answered before.
  void Read(absl::FunctionRef<void(const core::Core&)> read) const
      ABSL_LOCKS_EXCLUDED(state_mutex_);
  // From any thread; `rpcs` is left empty.
  telemetry::Snapshot TakeSnapshot() const ABSL_LOCKS_EXCLUDED(mutex_, state_mutex_);

  // By one thread at a time, its owner. True: there is more to do at once.
  bool Pass() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until there is something to do, or the next tick is due. False once the loop is closed
  // and nothing waits any more.
  bool AwaitWork() ABSL_LOCKS_EXCLUDED(mutex_);
  // Inspections under way are answered.
  void Finish();

  // From any thread: what comes later is refused.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Item {
    MakeObservation observe;  // one of these three
    MakeRequest decide;
    Control control;
    Answered answered{nullptr};
    Cost cost;
  };
  struct Lane {
    std::deque<Item> items;
    int64_t bytes = 0;
  };
  // One thing that was decided: a request, or without one what the core asks for by itself.
  struct Unit {
    std::optional<core::Request> request;
    Answered answered{nullptr};
    core::Effects effects;
  };

  CoreLoop(const CoreLoopOptions& options, std::unique_ptr<storage::Store> store,
           const Clock* clock);
  static void Refuse(Item item, const absl::Status& status);
  void Enqueue(Lane* lane, Item item) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Admit(const Lane& lane, const Item& item) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::vector<Item> Take(Lane* lane, int64_t count, int64_t bytes);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || !control_.items.empty() || !requests_.items.empty();
  }

  // By the owner only.
  core::Moment Now() const { return {clock_->Now(), clock_->Monotonic()}; }
  bool IsLate(const Item& item) const { return clock_->Monotonic() > item.cost.deadline; }
  bool WantsUpkeep() const { return clock_->Monotonic() >= upkeep_after_ && core_->NeedsUpkeep(); }
  void RunControl(Item item);
  std::optional<Unit> Prepare(Item item);
  void Settle(std::vector<Unit> units);
  void TakeApart(std::vector<Unit> units, absl::Status status);
  void Decide(Unit* unit);
  absl::Status Commit();
  void Release(std::vector<Unit> units);
  void Fail(Unit* unit, const absl::Status& status);
  void Send(std::vector<core::Signal> signals);
  void PublishNews(const std::map<std::string, int64_t>& news);
  void TickIfDue();
  void PublishReasons();
  void ForgetOldMetrics();
  Context MakeContext();

  const CoreLoopOptions options_;
  const Clock* const clock_;

  // Owned by whoever runs the passes.
  const std::unique_ptr<storage::Store> store_;
  JobListeners job_listeners_;
  Sessions sessions_;
  Inspections inspections_;
  absl::Duration next_tick_ = -absl::InfiniteDuration();
  absl::Duration upkeep_after_ = -absl::InfiniteDuration();  // it rests after a failed write
  absl::Duration complain_after_ = -absl::InfiniteDuration();
  bool more_ = false;                           // the last pass left something to do
  std::map<std::string, std::string> reasons_;  // of waiting jobs that somebody watches

  // Written by the owner under the lock, read by anybody under it, and by the owner without.
  mutable absl::Mutex state_mutex_;
  std::unique_ptr<core::Core> core_;
  telemetry::LatestMetrics latest_;
  telemetry::Histogram commit_seconds_;
  int64_t commit_failures_ = 0;

  mutable absl::Mutex mutex_;
  Lane control_ ABSL_GUARDED_BY(mutex_);
  Lane requests_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::loop
