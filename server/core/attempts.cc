#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/support/job_state.h"
#include "server/core/state.h"

namespace octavo::core {
namespace {

constexpr absl::Duration kLongestBackoff = absl::Minutes(1);

// A repetition of these would end the same way.
bool IsRetried(v1::FailureCause cause) {
  switch (cause) {
    case v1::FAILURE_CAUSE_INVALID_INPUT:
    case v1::FAILURE_CAUSE_NON_FINITE:
    case v1::FAILURE_CAUSE_OUT_OF_MEMORY:
    case v1::FAILURE_CAUSE_STORAGE:
      return false;
    default:
      return true;
  }
}

}  // namespace

v1::WorkerIdentity State::HolderOf(const v1::Job& job) const {
  v1::WorkerIdentity holder;
  const v1::Attempt& attempt = job.attempts(job.attempts_size() - 1);
  holder.set_worker_id(attempt.worker_id());
  holder.set_incarnation(attempt.incarnation());
  return holder;
}

v1::Assignment State::MakeAssignment(const JobRecord& record) const {
  const v1::Job& job = record.job;
  v1::Assignment assignment;
  *assignment.mutable_lease()->mutable_worker() = HolderOf(job);
  assignment.mutable_lease()->set_job_id(job.id());
  assignment.mutable_lease()->set_epoch(job.epoch());
  *assignment.mutable_spec() = job.spec();
  if (job.has_checkpoint()) *assignment.mutable_resume_from() = job.checkpoint();
  assignment.set_device_index(job.attempts(job.attempts_size() - 1).device_index());
  if (job.spec().stages_size() > 0) {
    const v1::Job* baseline = FindJob(job.spec().stages(0).divergence().baseline_job());
    if (baseline != nullptr) *assignment.mutable_baseline() = *baseline;
  }
  return assignment;
}

JobRecord* State::FindLeased(const v1::LeaseIdentity& lease) {
  JobRecord* record = Find(lease.job_id());
  if (record == nullptr || !record->lease) return nullptr;
#ifndef OCTAVO_PLANTED_BUG_NO_EPOCH_CHECK
  if (record->job.epoch() != lease.epoch()) return nullptr;
#endif
  const v1::WorkerIdentity holder = HolderOf(record->job);
  const bool holds = holder.worker_id() == lease.worker().worker_id() &&
                     holder.incarnation() == lease.worker().incarnation();
  return holds ? record : nullptr;
}

void State::BeginAttempt(JobRecord* record, WorkerRecord* worker, int32_t device_index) {
  RemovePending(record);
  v1::Job& job = record->job;
  job.set_epoch(job.epoch() + 1);
  v1::Attempt& attempt = *job.add_attempts();
  attempt.set_id(absl::StrCat(job.id(), ".", job.epoch()));
  attempt.set_epoch(job.epoch());
  attempt.set_worker_id(worker->identity.worker_id());
  attempt.set_incarnation(worker->identity.incarnation());
  attempt.set_device_index(device_index);
  attempt.set_start_step(job.checkpoint().step());
  *attempt.mutable_start_time() = ToTimestamp(wall_);
  if (!job.has_start_time()) *job.mutable_start_time() = attempt.start_time();
  job.set_state(v1::JOB_STATE_RUNNING);
  job.clear_pending_reason();

  record->lease = Lease{.ends = now_ + settings_.lease, .assign_until = now_ + settings_.lease};
  next_lapse_ = std::min(next_lapse_, LapseOf(*record->lease));
  leased_[record->order] = record;
  worker->leases.insert(record->order);
  ++counters_.attempts_started;
  Touch(record);

  Signal& signal = effects_.signals.emplace_back(Signal{worker->identity, {}});
  signal.message.set_acknowledged_sequence(worker->sequence);
  *signal.message.add_assignments() = MakeAssignment(*record);
}

// `failure` null: it succeeded. A job that is being cancelled becomes CANCELLED however its attempt
// ended.
void State::EndAttempt(JobRecord* record, const v1::Failure* failure, const v1::RunReport* report) {
  v1::Job& job = record->job;
  v1::Attempt& attempt = *job.mutable_attempts(job.attempts_size() - 1);
  *attempt.mutable_end_time() = ToTimestamp(wall_);
  if (failure != nullptr) {
    *attempt.mutable_failure() = *failure;
    ++counters_.attempts_failed[failure->cause()];
  }
  if (WorkerRecord* worker = FindWorker(HolderOf(job)); worker != nullptr) {
    worker->leases.erase(record->order);
  }
  record->lease.reset();
  leased_.erase(record->order);
  fleet_changed_ = true;
  Touch(record);

  if (job.state() == v1::JOB_STATE_CANCELLING) {
    job.set_state(v1::JOB_STATE_CANCELLED);
  } else if (failure == nullptr) {
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    if (report != nullptr) *job.mutable_report() = *report;
  } else {
    Retry(record, *failure);
  }
  if (IsTerminal(job.state())) {
    *job.mutable_end_time() = ToTimestamp(wall_);
    record->log.reset();
  }
}

void State::Retry(JobRecord* record, const v1::Failure& failure) {
  v1::Job& job = record->job;
  const int32_t restarts = job.attempts_size() - 1;
  const int32_t limit = job.spec().retries().max_restarts();
  if (IsRetried(failure.cause()) && restarts < limit) {
    job.set_state(v1::JOB_STATE_PENDING);
    Requeue(record);
    job.set_pending_reason(absl::StrCat("restart ", restarts + 1, " of ", limit, " waits ",
                                        absl::FormatDuration(Backoff(job)),
                                        " after: ", failure.message()));
    return;
  }
  job.set_state(v1::JOB_STATE_FAILED);
  *job.mutable_failure() = failure;
  if (IsRetried(failure.cause())) {
    job.mutable_failure()->set_message(
        absl::StrCat(failure.message(), "; not restarted again: retries.max_restarts is ", limit));
  }
}

void State::Requeue(JobRecord* record) {
  if (record->job.attempts_size() == 0) {
    AddReady(record);
    return;
  }
  record->not_before = now_ + Backoff(record->job);
  backing_off_.emplace(record->not_before, record->order);
}

// Only attempts in a row that began where the newest checkpoint still is count: a committed
// checkpoint is progress.
absl::Duration State::Backoff(const v1::Job& job) const {
  absl::Duration backoff = settings_.retry_backoff;
  for (int i = job.attempts_size() - 2; i >= 0 && backoff < kLongestBackoff; --i) {
    if (job.attempts(i).start_step() < job.checkpoint().step()) break;
    backoff *= 2;
  }
  return std::min(backoff, kLongestBackoff);
}

}  // namespace octavo::core
