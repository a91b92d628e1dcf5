// One attempt on this worker: its trainer, its socket and what it has to report. It waits until it
// is told to start, or to refuse what it was assigned.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "octavo/v1/worker.pb.h"
#include "worker/agent/child.h"
#include "worker/agent/log_lines.h"
#include "worker/agent/outbox.h"
#include "worker/agent/trainer_service.h"

namespace octavo::agent {

enum class StopReason {
  kRequested,     // by the coordinator: cancelled
  kOutOfContact,  // with the coordinator, for longer than this worker is to train on
  kShutdown,      // of this worker
  kFenced,        // the lease is gone: nothing is reported
};

class Attempt {
 public:
  struct Environment {
    std::string trainer;
    std::string socket_folder;
    int64_t memory_bytes = 0;
    int threads = 0;
    absl::Duration stop_grace;
    int64_t pending_log_bytes = 0;
    int64_t pending_metric_points = 0;
    absl::Duration out_of_contact_limit = absl::ZeroDuration();  // for the message of such an end
    FactSender* sender = nullptr;
    const Clock* clock = nullptr;
    int kill_signal = SIGKILL;               // see Child::WatchOptions
    absl::Duration death_time = kDeathTime;  // see there
    std::function<void()> on_over;  // called by the attempt's thread when it has nothing more to do
  };
  Attempt(v1::Assignment assignment, Environment environment);
  ~Attempt();  // kills the trainer if it still runs; reports nothing more

  const v1::LeaseIdentity& lease() const { return assignment_.lease(); }
  const v1::Assignment& assignment() const { return assignment_; }

  // Runs the trainer, on a thread of its own. Only the first call of Start, Refuse and Stop decides
  // how the attempt begins.
  void Start();
  // Reports that end without running a trainer.
  void Refuse(v1::Failure failure);

  // The first reason counts, but kFenced always does. Does not wait. The trainer gets time to end
  // by itself, but not if it is fenced: then it is killed.
  void Stop(StopReason reason);
  // The trainer is gone and its end was reported, or nobody wants to hear it.
  bool over() const;

  // Of the device it was assigned.
  enum class DeviceUse {
    kNone,   // not started yet, or the trainer is gone
    kUses,   // the trainer runs, or dies
    kStuck,  // the trainer was killed and does not end
  };
  DeviceUse device_use() const;
  // A trainer that does not end outlives its attempt: the caller keeps it from now on.
  std::unique_ptr<Child> TakeStuckTrainer();

 private:
  void Run();
  // False if it has begun already.
  bool Begin(DeviceUse use);
  void ReportEnd(const std::optional<v1::Failure>& failure, const v1::RunReport& report);
  void KeepStuckTrainer(std::unique_ptr<Child> child);
  // Of a trainer that was stopped without a report of its own; nothing if it was not stopped.
  std::optional<v1::Failure> FailureOfStop() const;
  absl::StatusOr<Child::Exit> RunTrainer(TrainerService* service);
  void AddLogLines(const std::vector<std::string>& lines);
  std::optional<v1::Failure> FailureOf(const absl::StatusOr<Child::Exit>& exit,
                                       const std::optional<v1::FinishRequest>& finished) const;
  std::optional<StopReason> stop_reason() const;

  const v1::Assignment assignment_;
  const Environment environment_;
  StopFlag stop_;
  StopFlag kill_;
  std::string last_line_;  // of the trainer; the attempt's thread only

  mutable absl::Mutex mutex_;
  std::optional<StopReason> stop_reason_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  DeviceUse device_use_ ABSL_GUARDED_BY(mutex_) = DeviceUse::kNone;
  std::unique_ptr<Child> stuck_trainer_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;

  Outbox outbox_;  // after what its callback uses
  std::thread thread_;
};

}  // namespace octavo::agent
