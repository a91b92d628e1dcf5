// octavo-worker: keeps the coordinator's assignments running until it takes them back.
//
// Without a coordinator trainers go on. Whether an attempt still holds its job is decided when the
// coordinator is heard again, or when a fact of the attempt is answered; until then nothing that
// the attempt does can reach the job (worker/README.md says why). So an agent that lost contact
// keeps no account of its leases, only a limit to how long it trains on.
#pragma once

#include <compare>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "octavo/v1/worker.pb.h"
#include "worker/agent/attempt.h"
#include "worker/agent/config.h"
#include "worker/agent/coordinator.h"
#include "worker/agent/inspector.h"
#include "worker/agent/session.h"

namespace octavo::agent {

struct LeaseKey {
  std::string job_id;
  int64_t epoch = 0;
  auto operator<=>(const LeaseKey&) const = default;
};

class Agent final : private SessionDelegate {
 public:
  struct Options {
    Config config;  // with worker_id and trainer filled in
    std::string socket_folder;
    std::vector<v1::Device> devices;
    std::string version;
    const Clock* clock = nullptr;
  };
  // Starts at once.
  explicit Agent(Options options);
  ~Agent() override;

  // Stops what was out of contact for too long and forgets what is over. To be called several times
  // a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes no more work, ends every trainer and tells the coordinator so that it can place the jobs
  // elsewhere. Takes stop_grace and a few seconds at most.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);
  // Not OK once the coordinator has rejected this agent for good.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Attempts that are not over.
  size_t running() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::optional<v1::RegisterWorkerRequest> MakeRegistration() override;
  void Registered(const v1::RegisterWorkerResponse& response) override;
  v1::SessionRequest MakeHeartbeat() override;
  void Received(const v1::SessionResponse& response) override;
  void Rejected(const absl::Status& status) override;

  // Every assignment is answered: it is run once its device is free, or refused if that never
  // comes. Meanwhile it is listed, so that its lease holds.
  void Assign(const v1::Assignment& assignment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Stop(const v1::LeaseIdentity& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Attempt> MakeAttempt(const v1::Assignment& assignment);
  // By trainers of any attempt, over or not.
  Attempt::DeviceUse UseOf(const std::string& kind, int index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginWaitingAttempts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes those that are over, for the caller to destroy without the lock; keeps their trainers
  // that do not end.
  std::vector<std::unique_ptr<Attempt>> TakeOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReapStuckTrainers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An assignment may arrive again after its attempt has ended.
  bool IsNews(const LeaseKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t MemoryOf(const v1::Assignment& assignment) const;
  int ThreadsOfTrainer() const;
  void AttemptOver() ABSL_LOCKS_EXCLUDED(mutex_);
  void StopIfOutOfContact() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Its device is offered again when it is gone.
  struct StuckTrainer {
    std::string device_kind;
    int device_index = 0;
    std::unique_ptr<Child> process;
  };

  const Options options_;
  const v1::WorkerIdentity identity_;
  Coordinator coordinator_;
  Inspector inspector_;

  mutable absl::Mutex mutex_;
  std::map<LeaseKey, std::unique_ptr<Attempt>> attempts_ ABSL_GUARDED_BY(mutex_);
  std::vector<StuckTrainer> stuck_trainers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> newest_epoch_ ABSL_GUARDED_BY(mutex_);  // by job
  std::deque<std::string> remembered_jobs_ ABSL_GUARDED_BY(mutex_);      // of newest_epoch_
  int64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;                         // of the last heartbeat
  absl::Duration last_contact_ ABSL_GUARDED_BY(mutex_);  // when the coordinator was last heard
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

  Session session_;  // last: its threads call the above
};

}  // namespace octavo::agent
