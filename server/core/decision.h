// The rules of jobs: one request, or what time and the fleet ask for, decided onto the overlay. It
// reads the fleet and never writes it: leases begin and end with the commit. Its methods are spread
// over files:
//   submits.cc   SubmitJob, CancelJob       facts.cc   what trainers report under a lease
//   attempts.cc  begin and end of one
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/overlay.h"
#include "server/core/settings.h"

namespace octavo::core {

class Decision {
 public:
  // All outlive it. `fleet` has seen `moment`.
  Decision(const Settings& settings, const Fleet& fleet, const Moment& moment, Overlay* overlay)
      : settings_(settings), fleet_(fleet), moment_(moment), overlay_(*overlay) {}

  // The answer holds nothing of a job, which gets its version when the request is ended: where it
  // is a job, `answered_job` names it.
  absl::StatusOr<AnswerBody> Take(const SubmitJob& request);
  absl::StatusOr<AnswerBody> Take(const CancelJob& request);
  absl::StatusOr<AnswerBody> Take(const v1::ReportAttemptFinishedRequest& request);
  absl::StatusOr<AnswerBody> Take(const v1::CommitCheckpointRequest& request);
  absl::StatusOr<AnswerBody> Take(const v1::PushMetricsRequest& request);
  absl::StatusOr<AnswerBody> Take(const v1::PushLogsRequest& request);

  void BeginAttempt(const JobPointer& pending, const WorkerRecord& worker, int32_t device_index);
  // `failure` null: it succeeded. A job that is being cancelled becomes CANCELLED however its
  // attempt ended.
  void EndAttempt(const JobPointer& leased, const v1::Failure* failure,
                  const v1::RunReport* report);

  const std::string& answered_job() const { return answered_job_; }
  std::vector<Signal> TakeSignals() { return std::move(signals_); }

 private:
  // attempts.cc
  void Retry(JobRecord* record, const v1::Failure& failure);
  void Cancel(const JobPointer& running);

  // facts.cc
  JobPointer FindLeased(const v1::LeaseIdentity& lease) const;  // null unless it is the holder
  absl::Status Fenced(const v1::LeaseIdentity& lease);
  void AppendLines(const v1::PushLogsRequest& request, PutLogs* write) const;

  const Settings& settings_;
  const Fleet& fleet_;
  const Moment moment_;
  Overlay& overlay_;
  std::vector<Signal> signals_;
  std::string answered_job_;
};

// Waits between attempts, from the stored attempts alone.
absl::Duration BackoffAfter(const Settings& settings, const v1::Job& job);
// Why a restart waits until its backoff is over.
std::string BackoffReason(const Settings& settings, const v1::Job& job);

v1::Assignment MakeAssignment(const v1::Job& job, const JobPointer& baseline);
std::string BaselineOf(const v1::Job& job);  // a job id; empty: none
v1::LeaseIdentity LeaseIdentityOf(const v1::Job& job);
// True when the lease is the one that the fleet granted to the job's newest attempt, and not over.
bool Holds(const v1::LeaseIdentity& identity, const Lease* granted);
// The refusal of a fact that came under another lease. `job` may be null.
absl::Status FencedError(const v1::LeaseIdentity& lease, const v1::Job* job);

}  // namespace octavo::core
