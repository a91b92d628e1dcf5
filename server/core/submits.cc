#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/core/state.h"

namespace octavo::core {

absl::Status State::Submit(const SubmitJob& event, Token token) {
  const std::string& request_id = event.request.request_id();
#ifndef OCTAVO_PLANTED_BUG_NO_SUBMIT_DEDUP
  if (const auto known = requests_.find(request_id); known != requests_.end()) {
    if (known->second.spec_sha256 != event.spec_sha256) {
      return absl::AlreadyExistsError(
          absl::StrCat("request_id ", request_id, " was used for ", known->second.job_id,
                       " with another spec; choose a new request_id for a new job"));
    }
    ++counters_.repeated_submits;
    AnswerWithJob(token, Find(known->second.job_id));
    return absl::OkStatus();
  }
#endif
  if (PendingCount() >= settings_.max_pending_jobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat(PendingCount(), " jobs are pending, the limit is ", settings_.max_pending_jobs,
                     "; submit again when some have started"));
  }
  const auto [position, fresh] = jobs_.try_emplace(event.job_id);
  CHECK(fresh);
  JobRecord& record = position->second;
  record.order = by_order_.empty() ? 1 : by_order_.rbegin()->first + 1;
  record.job.set_id(event.job_id);
  *record.job.mutable_spec() = event.request.spec();
  record.job.set_state(v1::JOB_STATE_PENDING);
  *record.job.mutable_submit_time() = ToTimestamp(wall_);
  record.job.set_memory_bytes(event.memory_bytes);
  by_order_[record.order] = &record;
  AddReady(&record);
  const PutRequest put{request_id, event.job_id, event.spec_sha256};
  requests_[request_id] = put;
  effects_.writes.push_back(put);
  ++counters_.submits;
  Touch(&record);
  AnswerWithJob(token, &record);
  return absl::OkStatus();
}

absl::Status State::Cancel(const CancelJob& event, Token token) {
  JobRecord* record = Find(event.job_id);
  if (record == nullptr) return absl::NotFoundError(absl::StrCat("no job ", event.job_id));
  switch (record->job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
    case v1::JOB_STATE_FAILED:
      return absl::FailedPreconditionError(
          absl::StrCat(event.job_id, " already ended as ", v1::JobState_Name(record->job.state())));
    case v1::JOB_STATE_PENDING:
      RemovePending(record);
      record->job.set_state(v1::JOB_STATE_CANCELLED);
      record->job.clear_pending_reason();
      *record->job.mutable_end_time() = ToTimestamp(wall_);
      record->log.reset();
      Touch(record);
      break;
    case v1::JOB_STATE_RUNNING: {
      record->job.set_state(v1::JOB_STATE_CANCELLING);
      Touch(record);
      // Should this be lost: the stop is repeated with every heartbeat, and the lease is no longer
      // renewed.
      const v1::WorkerIdentity holder = HolderOf(record->job);
      if (const WorkerRecord* worker = FindWorker(holder); worker != nullptr) {
        Signal& signal = effects_.signals.emplace_back(Signal{holder, {}});
        signal.message.set_acknowledged_sequence(worker->sequence);
        *signal.message.add_stop() = MakeAssignment(*record).lease();
      }
      break;
    }
    default:
      break;
  }
  AnswerWithJob(token, record);
  return absl::OkStatus();
}

}  // namespace octavo::core
