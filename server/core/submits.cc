#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/core/decision.h"

namespace octavo::core {

absl::StatusOr<AnswerBody> Decision::Take(const SubmitJob& request) {
  const std::string& request_id = request.request.request_id();
  if (const PutRequest* const known = overlay_.FindRequest(request_id); known != nullptr) {
    if (known->spec_sha256 != request.spec_sha256) {
      return absl::AlreadyExistsError(absl::StrCat("request_id ", request_id, " was used for ",
                                                   known->job_id,
                                                   " with another spec; choose a new request_id "
                                                   "for a new job"));
    }
    ++overlay_.counters.repeated_submits;
    answered_job_ = known->job_id;
    return AnswerBody();
  }
  if (const int64_t pending = overlay_.PendingCount(); pending >= settings_.max_pending_jobs) {
    return absl::ResourceExhaustedError(absl::StrCat(pending, " jobs are pending, the limit is ",
                                                     settings_.max_pending_jobs,
                                                     "; submit again when some have started"));
  }
  v1::Job& job = overlay_.Add(request.job_id)->job;
  *job.mutable_spec() = request.request.spec();
  job.set_state(v1::JOB_STATE_PENDING);
  *job.mutable_submit_time() = ToTimestamp(moment_.wall);
  job.set_memory_bytes(request.memory_bytes);
  overlay_.Put(PutRequest{request_id, request.job_id, request.spec_sha256});
  ++overlay_.counters.submits;
  answered_job_ = request.job_id;
  return AnswerBody();
}

absl::StatusOr<AnswerBody> Decision::Take(const CancelJob& request) {
  const JobPointer record = overlay_.Find(request.job_id);
  if (record == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.job_id));
  switch (record->job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
    case v1::JOB_STATE_FAILED:
      return absl::FailedPreconditionError(absl::StrCat(request.job_id, " already ended as ",
                                                        v1::JobState_Name(record->job.state())));
    case v1::JOB_STATE_PENDING: {
      v1::Job& job = overlay_.Change(record)->job;
      job.set_state(v1::JOB_STATE_CANCELLED);
      *job.mutable_end_time() = ToTimestamp(moment_.wall);
      break;
    }
    case v1::JOB_STATE_RUNNING:
      Cancel(record);
      break;
    default:
      break;
  }
  answered_job_ = request.job_id;
  return AnswerBody();
}

// Should the signal be lost: the stop is repeated with every heartbeat, and the lease is no longer
// renewed.
void Decision::Cancel(const JobPointer& running) {
  overlay_.Change(running)->job.set_state(v1::JOB_STATE_CANCELLING);
  const v1::LeaseIdentity lease = LeaseIdentityOf(running->job);
  const WorkerRecord* const worker = fleet_.FindWorker(lease.worker());
  if (worker == nullptr) return;
  Signal& signal = signals_.emplace_back(Signal{lease.worker(), {}});
  signal.message.set_acknowledged_sequence(worker->sequence);
  *signal.message.add_stop() = lease;
}

}  // namespace octavo::core
