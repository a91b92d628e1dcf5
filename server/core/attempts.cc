#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/support/job_state.h"
#include "server/core/decision.h"

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

v1::LeaseIdentity LeaseIdentityOf(const v1::Job& job) {
  const v1::Attempt& attempt = LastAttempt(job);
  v1::LeaseIdentity lease;
  lease.mutable_worker()->set_worker_id(attempt.worker_id());
  lease.mutable_worker()->set_incarnation(attempt.incarnation());
  lease.set_job_id(job.id());
  lease.set_epoch(job.epoch());
  return lease;
}

bool Holds(const v1::LeaseIdentity& identity, const Lease* granted) {
  return granted != nullptr && !granted->over && granted->epoch == identity.epoch() &&
         SameIdentity(granted->holder, identity.worker());
}

std::string BaselineOf(const v1::Job& job) {
  return job.spec().stages_size() == 0 ? "" : job.spec().stages(0).divergence().baseline_job();
}

v1::Assignment MakeAssignment(const v1::Job& job, const JobPointer& baseline) {
  v1::Assignment assignment;
  *assignment.mutable_lease() = LeaseIdentityOf(job);
  *assignment.mutable_spec() = job.spec();
  if (job.has_checkpoint()) *assignment.mutable_resume_from() = job.checkpoint();
  assignment.set_device_index(LastAttempt(job).device_index());
  if (baseline != nullptr) *assignment.mutable_baseline() = baseline->job;
  return assignment;
}

void Decision::BeginAttempt(const JobPointer& pending, const WorkerRecord& worker,
                            int32_t device_index) {
  JobRecord* const record = overlay_.Change(pending);
  v1::Job& job = record->job;
  job.set_epoch(job.epoch() + 1);
  v1::Attempt& attempt = *job.add_attempts();
  attempt.set_id(absl::StrCat(job.id(), ".", job.epoch()));
  attempt.set_epoch(job.epoch());
  attempt.set_worker_id(worker.identity.worker_id());
  attempt.set_incarnation(worker.identity.incarnation());
  attempt.set_device_index(device_index);
  attempt.set_start_step(job.checkpoint().step());
  *attempt.mutable_start_time() = ToTimestamp(moment_.wall);
  if (!job.has_start_time()) *job.mutable_start_time() = attempt.start_time();
  job.set_state(v1::JOB_STATE_RUNNING);
  overlay_.Grant(*record, {.job_id = job.id(),
                           .epoch = job.epoch(),
                           .holder = worker.identity,
                           .device_kind = job.spec().resources().device_kind(),
                           .device_index = device_index,
                           .ends = fleet_.now() + settings_.lease,
                           .assign_until = fleet_.now() + settings_.lease,
                           .over = std::nullopt});
  ++overlay_.counters.attempts_started;

  Signal& signal = signals_.emplace_back(Signal{worker.identity, {}});
  signal.message.set_acknowledged_sequence(worker.sequence);
  *signal.message.add_assignments() = MakeAssignment(job, overlay_.Find(BaselineOf(job)));
}

void Decision::EndAttempt(const JobPointer& leased, const v1::Failure* failure,
                          const v1::RunReport* report) {
  JobRecord* const record = overlay_.Change(leased);
  v1::Job& job = record->job;
  v1::Attempt& attempt = *job.mutable_attempts(job.attempts_size() - 1);
  *attempt.mutable_end_time() = ToTimestamp(moment_.wall);
  if (failure != nullptr) {
    *attempt.mutable_failure() = *failure;
    ++overlay_.counters.attempts_failed[failure->cause()];
  }
  if (job.state() == v1::JOB_STATE_CANCELLING) {
    job.set_state(v1::JOB_STATE_CANCELLED);
  } else if (failure == nullptr) {
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    if (report != nullptr) *job.mutable_report() = *report;
  } else {
    Retry(record, *failure);
  }
  if (IsTerminal(job.state())) *job.mutable_end_time() = ToTimestamp(moment_.wall);
}

void Decision::Retry(JobRecord* record, const v1::Failure& failure) {
  v1::Job& job = record->job;
  const int32_t restarts = job.attempts_size() - 1;
  const int32_t limit = job.spec().retries().max_restarts();
  if (IsRetried(failure.cause()) && restarts < limit) {
    job.set_state(v1::JOB_STATE_PENDING);
    record->not_before = fleet_.now() + BackoffAfter(settings_, job);
    return;
  }
  job.set_state(v1::JOB_STATE_FAILED);
  *job.mutable_failure() = failure;
  if (IsRetried(failure.cause())) {
    job.mutable_failure()->set_message(
        absl::StrCat(failure.message(), "; not restarted again: retries.max_restarts is ", limit));
  }
}

// Only attempts in a row that began where the newest checkpoint still is count: a committed
// checkpoint is progress.
absl::Duration BackoffAfter(const Settings& settings, const v1::Job& job) {
  absl::Duration backoff = settings.retry_backoff;
  for (int i = job.attempts_size() - 2; i >= 0 && backoff < kLongestBackoff; --i) {
    if (job.attempts(i).start_step() < job.checkpoint().step()) break;
    backoff *= 2;
  }
  return std::min(backoff, kLongestBackoff);
}

std::string BackoffReason(const Settings& settings, const v1::Job& job) {
  return absl::StrCat("restart ", job.attempts_size(), " of ", job.spec().retries().max_restarts(),
                      " waits ", absl::FormatDuration(BackoffAfter(settings, job)),
                      " after: ", LastAttempt(job).failure().message());
}

}  // namespace octavo::core
