// The coordinator's brain: jobs, attempts, leases and workers as a deterministic state machine. It
// knows no clock, thread, file or socket; equal events at equal times give equal effects.
//
//   Observe(observation)           changes the fleet; answered at once
//   Decide(request), Upkeep()      decide onto the overlay
//   writes()                       of the overlay: the shell makes them durable, in one transaction
//   Commit() or Drop()             the overlay becomes the jobs, or nothing of it happened
//
// Answers and signals of what was decided leave only after Commit, so they never speak of something
// that a crash could undo. What Upkeep asks for follows from the state alone: after a Drop it asks
// for it again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/core/counters.h"
#include "server/core/events.h"
#include "server/core/fleet.h"
#include "server/core/jobs.h"
#include "server/core/overlay.h"
#include "server/core/pending.h"
#include "server/core/settings.h"

namespace octavo::core {

// Everything durable, as the store hands it back at start.
struct DurableState {
  std::vector<PutJob> jobs;
  std::vector<PutRequest> requests;
  std::vector<LogCursor> log_cursors;  // of jobs that are not terminal
};

class Core {
 public:
  // Leases of running attempts start anew at `now` (the workers may have been renewed by the former
  // process up to its end).
  Core(const Settings& settings, DurableState state, absl::Duration now);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Time passes: leases lapse, silent workers are forgotten, restarts become due. Part of every
  // event; due at least once per Settings::heartbeat: a longer silence than
  // Settings::unreachable_after reads as a pause of the coordinator itself, and every lease starts
  // anew.
  void Advance(absl::Duration now);
  Effects Observe(const Observation& observation, const Moment& moment);
  Effects Decide(const Request& request, const Moment& moment);
  // The ends of leases that are over, and placements: at most kUpkeepLimit of each, so that one
  // transaction is bounded. Only with nothing decided.
  std::vector<Signal> Upkeep(const Moment& moment);
  // Upkeep would decide something.
  bool NeedsUpkeep() const;

  const std::vector<Write>& writes() const { return overlay_.writes(); }
  // The jobs that changed.
  std::vector<JobPointer> Commit();
  void Drop();

  // Committed, or of the fleet as it is. Reads may run on several threads as long as no other
  // method does.
  const Jobs& jobs() const { return jobs_; }
  const Fleet& fleet() const { return fleet_; }
  // The job for a reader: pending_reason says why it waits at the time of the last event.
  v1::Job Describe(const JobRecord& record) const;
  std::vector<v1::Worker> ListWorkers(const std::string& after, int64_t limit) const;  // by id
  const Counters& counters() const { return counters_; }
  // Not committed yet, either.
  bool HasJob(const std::string& job_id) const { return overlay_.Find(job_id) != nullptr; }

 private:
  using AnswerOr = absl::StatusOr<AnswerBody>;

  void Restore(DurableState state);
  void Fold(const JobPointer& record);

  // observations.cc
  AnswerOr Take(const RegisterWorker& body, const Moment& moment, std::vector<Signal>* signals);
  AnswerOr Take(const Heartbeat& body, const Moment& moment, std::vector<Signal>* signals);
  AnswerOr Take(const SessionClosed& body, const Moment& moment, std::vector<Signal>* signals);
  AnswerOr Take(const v1::ReportAttemptStartedRequest& body, const Moment& moment,
                std::vector<Signal>* signals);
  AnswerOr Take(const v1::BeginCheckpointRequest& body, const Moment& moment,
                std::vector<Signal>* signals);
  Lease* FindHeld(const v1::LeaseIdentity& identity, JobPointer* record);
  absl::Status Fenced(const v1::LeaseIdentity& lease);
  void ReviewUnlisted(const WorkerRecord& worker, const std::set<int64_t>& listed,
                      v1::SessionResponse* response);
  v1::Assignment AssignmentOf(const JobRecord& record) const;

  const Settings settings_;
  Jobs jobs_;
  Pending pending_;
  Fleet fleet_;
  Overlay overlay_;
  Counters counters_;
};

}  // namespace octavo::core
