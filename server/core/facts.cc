#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/core/decision.h"

namespace octavo::core {
namespace {

int32_t Kept(const v1::Job& job) {
  return job.spec().stages_size() == 0 ? 1 : std::max(1, job.spec().stages(0).checkpoint().keep());
}

// Of the committed checkpoints, oldest first, those that are no longer kept.
int32_t ObsoleteCount(const v1::Job& job) {
  return std::max(0, job.checkpoints_size() - Kept(job));
}

v1::CommitCheckpointResponse ObsoleteFolders(const v1::Job& job) {
  v1::CommitCheckpointResponse response;
  for (int i = 0; i < ObsoleteCount(job); ++i) {
    response.add_obsolete_folders(job.checkpoints(i).folder());
  }
  return response;
}

}  // namespace

JobPointer Decision::FindLeased(const v1::LeaseIdentity& lease) const {
  JobPointer record = overlay_.Find(lease.job_id());
  // An end that this batch decided already, or a lease that the fleet has not: not the holder.
  if (record == nullptr || !IsLeased(record->job)) return nullptr;
  return Holds(lease, fleet_.FindLease(record->order)) ? record : nullptr;
}

absl::Status FencedError(const v1::LeaseIdentity& lease, const v1::Job* job) {
  return absl::FailedPreconditionError(absl::StrCat(
      "LEASE_FENCED: epoch ", lease.epoch(), " of ", lease.job_id(), " on worker ",
      lease.worker().worker_id(),
      job == nullptr ? " is unknown"
                     : absl::StrCat(" no longer holds the lease; the job is ",
                                    v1::JobState_Name(job->state()), " at epoch ", job->epoch())));
}

absl::Status Decision::Fenced(const v1::LeaseIdentity& lease) {
  ++overlay_.counters.fenced;
  const JobPointer record = overlay_.Find(lease.job_id());
  return FencedError(lease, record == nullptr ? nullptr : &record->job);
}

// A repetition is told from a late contradiction by the attempt's stored end, which outlives a
// restart.
absl::StatusOr<AnswerBody> Decision::Take(const v1::ReportAttemptFinishedRequest& request) {
  v1::Failure failure = request.failure();
  if (failure.cause() == v1::FAILURE_CAUSE_UNSPECIFIED)
    failure.set_cause(v1::FAILURE_CAUSE_INTERNAL);
  const v1::Failure* outcome = request.has_failure() ? &failure : nullptr;
  if (const JobPointer record = FindLeased(request.lease()); record != nullptr) {
    const bool wrote_last = record->job.checkpoint().epoch() == record->job.epoch();
    if (outcome == nullptr && wrote_last) {  // so the answer to its last commit arrived
      v1::Job& job = overlay_.Change(record)->job;
      job.mutable_checkpoints()->DeleteSubrange(0, ObsoleteCount(job));
    }
    EndAttempt(record, outcome, request.has_report() ? &request.report() : nullptr);
    return AnswerBody();
  }
  if (const JobPointer record = overlay_.Find(request.lease().job_id()); record != nullptr) {
    for (const v1::Attempt& attempt : record->job.attempts()) {
      const bool same = attempt.epoch() == request.lease().epoch() &&
                        attempt.worker_id() == request.lease().worker().worker_id() &&
                        attempt.incarnation() == request.lease().worker().incarnation() &&
                        attempt.has_end_time() && attempt.has_failure() == request.has_failure();
      if (same && attempt.failure().cause() == (outcome ? outcome->cause() : v1::FailureCause())) {
        return AnswerBody();
      }
    }
  }
  return Fenced(request.lease());
}

absl::StatusOr<AnswerBody> Decision::Take(const v1::CommitCheckpointRequest& request) {
  const JobPointer record = FindLeased(request.lease());
  if (record == nullptr) return Fenced(request.lease());
  const v1::Job& before = record->job;
  v1::Checkpoint checkpoint = request.checkpoint();
  checkpoint.set_epoch(request.lease().epoch());
  for (const v1::Checkpoint& committed : before.checkpoints()) {
    if (committed.folder() != checkpoint.folder()) continue;
    if (committed.step() == checkpoint.step() && committed.epoch() == checkpoint.epoch() &&
        committed.manifest_sha256() == checkpoint.manifest_sha256()) {
      return AnswerBody(ObsoleteFolders(before));
    }
    return absl::AlreadyExistsError(absl::StrCat("folder ", checkpoint.folder(),
                                                 " was committed with step ", committed.step(),
                                                 " of epoch ", committed.epoch(), " before"));
  }
  const bool continues = before.checkpoint().epoch() == checkpoint.epoch();
  if (checkpoint.step() < before.checkpoint().step() + (continues ? 1 : 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint of step ", checkpoint.step(), " does not follow the committed step ",
        before.checkpoint().step(), " of ", before.id()));
  }
  v1::Job& job = overlay_.Change(record)->job;
  // An attempt commits one after another, so a second commit tells that the folders of the first
  // answer are gone. Until then they stay listed: the answer may have been lost with its worker.
  if (continues) job.mutable_checkpoints()->DeleteSubrange(0, ObsoleteCount(job));
  *job.add_checkpoints() = checkpoint;
  *job.mutable_checkpoint() = checkpoint;
  return AnswerBody(ObsoleteFolders(job));
}

absl::StatusOr<AnswerBody> Decision::Take(const v1::PushMetricsRequest& request) {
  const JobPointer record = FindLeased(request.lease());
  if (record == nullptr) return Fenced(request.lease());
  if (request.points_size() > 0) {
    overlay_.Put(PutMetrics{record->job.id(), {request.points().begin(), request.points().end()}});
  }
  return AnswerBody();
}

absl::StatusOr<AnswerBody> Decision::Take(const v1::PushLogsRequest& request) {
  const JobPointer record = FindLeased(request.lease());
  if (record == nullptr) return Fenced(request.lease());
  PutLogs write = {.cursor = overlay_.CursorOf(record->job.id()), .lines = {}};
  LogCursor& cursor = write.cursor;
  if (cursor.epoch != request.lease().epoch()) {
    cursor.epoch = request.lease().epoch();
    cursor.next_sequence = 0;
  }
  if (request.sequence() < cursor.next_sequence) return AnswerBody();
  if (request.sequence() > cursor.next_sequence) {
    return absl::OutOfRangeError(absl::StrCat("log batch ", request.sequence(), " of ",
                                              request.lease().job_id(), " came before batch ",
                                              cursor.next_sequence, "; send that one first"));
  }
  ++cursor.next_sequence;
  AppendLines(request, &write);
  overlay_.Put(std::move(write));
  return AnswerBody();
}

void Decision::AppendLines(const v1::PushLogsRequest& request, PutLogs* write) const {
  LogCursor& cursor = write->cursor;
  const std::string attempt_id = absl::StrCat(cursor.job_id, ".", cursor.epoch);
  for (const v1::LogLine& line : request.lines()) {
    if (cursor.full) return;
    v1::LogLine& stored = write->lines.emplace_back(line);
    if (cursor.bytes + static_cast<int64_t>(line.text().size()) > settings_.max_log_bytes_per_job) {
      cursor.full = true;
      stored.set_text(absl::StrCat("octavod: the logs of this job reached ",
                                   settings_.max_log_bytes_per_job,
                                   " bytes; further lines are dropped"));
    }
    cursor.bytes += static_cast<int64_t>(stored.text().size());
    stored.set_offset(cursor.next_offset++);
    stored.set_attempt_id(attempt_id);
  }
}

}  // namespace octavo::core
