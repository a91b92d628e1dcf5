// octavo-worker with its trainers, as a model: the rules of worker.proto that an agent must keep,
// and nothing else.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/caller.h"
#include "tests/simulation/coordinator.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/universe.h"

namespace octavo::simulation {

class Worker {
 public:
  struct Fact {
    Event body;
    std::string what;
    std::function<void(const Answer&)> done;
    bool dies_with_trainer = false;
  };
  // From taking the assignment until the end was acknowledged.
  struct Attempt {
    v1::LeaseIdentity lease;
    v1::JobSpec spec;
    int32_t device_index = 0;
    bool training = false;
    absl::Duration stop_at;  // local time at which the trainer must be dead
    int64_t step = 0;
    std::string parent;  // newest checkpoint folder of its lineage
    int64_t next_log_sequence = 0;
    int64_t lines = 0;          // logged
    int64_t unsent_from = 0;    // first line not yet in a batch
    int64_t unsent_metric = 0;  // first step not yet in a batch
    std::deque<Fact> outbox;    // the first one is being sent
    uint64_t call = 0;          // 0: none
  };
  struct Environment {
    Universe* universe;
    Coordinator* coordinator;
    Storage* storage;
    Ledger* ledger;
    core::Settings settings;
    Flaws flaws;
  };

  Worker(const Environment& environment, std::string id, std::vector<v1::Device> devices);

  void OnSignal(const v1::WorkerIdentity& to, const v1::SessionResponse& message);
  void Crash(absl::Duration outage);
  // By its own clock the lease allows the trainer to run now.
  bool BelievesToHold(const Attempt& attempt) const;
  const std::map<std::string, Attempt>& attempts() const { return attempts_; }  // by job

  Node node;

 private:
  // worker.cc: the session
  void Start();
  void Register();
  void OnRegistered(const std::vector<v1::LeaseIdentity>& listed, const Answer& answer);
  void HeartbeatLoop();
  void Take(const v1::Assignment& assignment, absl::Duration sent);
  void Stop(const v1::LeaseIdentity& lease);
  std::vector<v1::LeaseIdentity> Running() const;
  Attempt* FindAttempt(const std::string& job_id, int64_t epoch);
  void WatchLease(const std::string& job_id, int64_t epoch);

  // trainer.cc: one attempt
  void Step(const std::string& job_id, int64_t epoch);
  void Checkpoint(Attempt* attempt);
  void CommitFolder(Attempt* attempt, const std::string& folder);
  void OnCommitted(Attempt* attempt, const std::string& folder, const Answer& answer);
  void QueueTelemetry(Attempt* attempt);
  void QueueLogs(Attempt* attempt);
  void QueueMetrics(Attempt* attempt);
  void EndTrainer(Attempt* attempt, v1::FailureCause cause);  // unspecified: success
  void Queue(Attempt* attempt, Fact fact);
  void SendNext(Attempt* attempt);
  void OnFactAnswered(const std::string& job_id, int64_t epoch, const Answer& answer);
  void ScheduleStep(const Attempt& attempt);

  absl::Duration Local() const { return universe_->Local(node); }
  std::string Name(const Attempt& attempt) const;

  Universe* const universe_;
  Coordinator* const coordinator_;
  Storage* const storage_;
  Ledger* const ledger_;
  const core::Settings settings_;
  const Flaws flaws_;
  const std::vector<v1::Device> devices_;
  Caller caller_;
  v1::WorkerIdentity identity_;
  bool registered_ = false;
  bool registering_ = false;
  int64_t sequence_ = 0;
  std::map<int64_t, absl::Duration> sent_;  // heartbeats, local time
  std::map<std::string, int64_t> seen_;     // by job: the newest epoch that this incarnation met
  std::map<std::string, Attempt> attempts_;
};

}  // namespace octavo::simulation
