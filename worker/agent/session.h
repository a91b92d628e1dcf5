// The agent's line to the coordinator: register, hold the stream, beat; when it breaks, again.
#pragma once

#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "octavo/v1/worker.pb.h"
#include "worker/agent/backoff.h"
#include "worker/agent/coordinator.h"

namespace octavo::agent {

// What the session speaks about. Called by its threads, one call at a time of each kind.
class SessionDelegate {
 public:
  virtual ~SessionDelegate() = default;
  // Nothing: there is nothing to offer, and the session waits until there is.
  virtual std::optional<v1::RegisterWorkerRequest> MakeRegistration() = 0;
  virtual void Registered(const v1::RegisterWorkerResponse& response) = 0;
  // Of this very moment: the heartbeat is sent when this returns.
  virtual v1::SessionRequest MakeHeartbeat() = 0;
  virtual void Received(const v1::SessionResponse& response) = 0;
  // The coordinator will never have this agent again; the session has ended.
  virtual void Rejected(const absl::Status& status) = 0;
};

class Session {
 public:
  // `coordinator`, `delegate` and `clock` outlive the session.
  Session(Coordinator* coordinator, SessionDelegate* delegate, const Clock* clock,
          Backoff::Options backoff, uint64_t seed);
  ~Session() { Stop(); }

  void Start();

  // A heartbeat is due now: something changed that the coordinator should know.
  void Poke();
  // The registration no longer holds: makes another one.
  void RegisterAnew();
  // Closes the stream and ends the threads.
  void Stop();

 private:
  void Run();
  // False when the coordinator rejected this agent.
  bool RegisterOnce(absl::Duration* heartbeat, absl::Status* status);
  absl::Status HoldStream(absl::Duration heartbeat);
  void ReadStream(Coordinator::Stream* stream);
  // True when another heartbeat is due, false when the stream has ended or has to.
  bool AwaitNextHeartbeat(absl::Duration heartbeat);
  bool StreamIsOpen();
  bool TakeRegisterAnew();
  bool AwaitStop(absl::Duration time_limit);

  Coordinator* const coordinator_;
  SessionDelegate* const delegate_;
  const Clock* const clock_;
  Backoff backoff_;  // of the session's thread

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool poked_ ABSL_GUARDED_BY(mutex_) = false;
  bool register_anew_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration last_answer_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace octavo::agent
