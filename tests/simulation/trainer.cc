#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/worker.h"

namespace octavo::simulation {
namespace {

const std::vector<v1::FailureCause> kCauses = {
    v1::FAILURE_CAUSE_TRAINER_CRASHED, v1::FAILURE_CAUSE_TRAINER_CRASHED,
    v1::FAILURE_CAUSE_TRAINER_CRASHED, v1::FAILURE_CAUSE_INTERNAL,
    v1::FAILURE_CAUSE_INVALID_INPUT,   v1::FAILURE_CAUSE_NON_FINITE,
    v1::FAILURE_CAUSE_OUT_OF_MEMORY,   v1::FAILURE_CAUSE_STORAGE};

bool IsFenced(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition &&
         status.message().substr(0, 12) == "LEASE_FENCED";
}

AttemptKey KeyOf(const v1::LeaseIdentity& lease) { return {lease.job_id(), lease.epoch()}; }

}  // namespace

std::string Worker::Name(const Attempt& attempt) const {
  return absl::StrCat(attempt.lease.job_id(), ".", attempt.lease.epoch());
}

void Worker::ScheduleStep(const Attempt& attempt) {
  const absl::Duration taken =
      universe_->random.Between(absl::Milliseconds(50), absl::Milliseconds(600));
  universe_->After(
      node, taken,
      [this, job = attempt.lease.job_id(), epoch = attempt.lease.epoch()] { Step(job, epoch); });
}

void Worker::Step(const std::string& job_id, int64_t epoch) {
  Attempt* attempt = FindAttempt(job_id, epoch);
  if (attempt == nullptr || !attempt->training) return;
  if (universe_->random.Chance(universe_->faults.trainer_crash)) {
    EndTrainer(attempt, universe_->random.Choose(kCauses));
    return;
  }
  const int64_t steps = attempt->spec.stages(0).steps();
  if (attempt->step >= steps) {  // it resumed from the last checkpoint
    EndTrainer(attempt, v1::FAILURE_CAUSE_UNSPECIFIED);
    return;
  }
  ++attempt->step;
  ++attempt->lines;
  const int64_t every = attempt->spec.stages(0).checkpoint().every_steps();
  if (attempt->step % every == 0 || attempt->step == steps) {
    Checkpoint(attempt);
    return;
  }
  if (attempt->step % 2 == 0) QueueTelemetry(attempt);
  ScheduleStep(*attempt);
}

void Worker::QueueTelemetry(Attempt* attempt) {
  QueueLogs(attempt);
  QueueMetrics(attempt);
}

void Worker::QueueLogs(Attempt* attempt) {
  v1::PushLogsRequest request;
  *request.mutable_lease() = attempt->lease;
  request.set_sequence(attempt->next_log_sequence++);
  for (; attempt->unsent_from < attempt->lines; ++attempt->unsent_from) {
    request.add_lines()->set_text(absl::StrCat("line ", attempt->unsent_from));
  }
  const auto done = [this, key = KeyOf(attempt->lease),
                     lines = attempt->lines](const Answer& answer) {
    if (answer.ok()) {
      ledger_->log_lines[key] = lines;
    } else {
      universe_->Fail("log_offsets", answer.status().ToString());
    }
  };
  Queue(attempt, {request, absl::StrCat("Logs ", Name(*attempt)), done});
}

void Worker::QueueMetrics(Attempt* attempt) {
  v1::PushMetricsRequest request;
  *request.mutable_lease() = attempt->lease;
  for (; attempt->unsent_metric <= attempt->step; ++attempt->unsent_metric) {
    v1::MetricPoint* point = request.add_points();
    point->set_name("train/loss");
    point->set_step(attempt->unsent_metric);
  }
  const auto done = [this, request](const Answer& answer) {
    if (!answer.ok()) return;
    for (const v1::MetricPoint& point : request.points()) {
      ledger_->metrics.insert({request.lease().job_id(), point.step()});
    }
  };
  Queue(attempt, {request, absl::StrCat("Metrics ", Name(*attempt)), done});
}

// Begin, write the folder aside, commit; the trainer waits meanwhile.
void Worker::Checkpoint(Attempt* attempt) {
  QueueTelemetry(attempt);
  v1::BeginCheckpointRequest request;
  *request.mutable_lease() = attempt->lease;
  request.set_step(attempt->step);
  request.set_folder(absl::StrCat("/", attempt->lease.job_id(), "/step-", attempt->step, "-epoch-",
                                  attempt->lease.epoch()));
  const auto done = [this, key = KeyOf(attempt->lease),
                     folder = request.folder()](const Answer& answer) {
    Attempt* present = FindAttempt(key.first, key.second);
    if (answer.ok()) {
      CommitFolder(present, folder);
    } else {
      universe_->Fail("one_lineage", answer.status().ToString());
    }
  };
  Queue(attempt, {request, absl::StrCat("Begin ", request.folder()), done, true});
}

void Worker::CommitFolder(Attempt* attempt, const std::string& folder) {
  (*storage_)[folder] = {attempt->lease.job_id(), attempt->step, attempt->parent};
  v1::CommitCheckpointRequest request;
  *request.mutable_lease() = attempt->lease;
  request.mutable_checkpoint()->set_step(attempt->step);
  request.mutable_checkpoint()->set_folder(folder);
  const auto done = [this, key = KeyOf(attempt->lease), folder](const Answer& answer) {
    OnCommitted(FindAttempt(key.first, key.second), folder, answer);
  };
  Queue(attempt, {request, absl::StrCat("Commit ", folder), done, true});
}

void Worker::OnCommitted(Attempt* attempt, const std::string& folder, const Answer& answer) {
  if (!answer.ok()) {
    universe_->Fail("one_lineage", answer.status().ToString());
    return;
  }
  const std::string& job = attempt->lease.job_id();
  ledger_->commits[job] = std::max(ledger_->commits[job], attempt->step);
  attempt->parent = folder;
  const auto& response = std::get<v1::CommitCheckpointResponse>(*answer);
  for (const std::string& obsolete : response.obsolete_folders()) storage_->erase(obsolete);
  if (attempt->step < attempt->spec.stages(0).steps()) {
    ScheduleStep(*attempt);
  } else {
    EndTrainer(attempt, v1::FAILURE_CAUSE_UNSPECIFIED);
  }
}

void Worker::EndTrainer(Attempt* attempt, v1::FailureCause cause) {
  attempt->training = false;
  if (!attempt->outbox.empty() && attempt->outbox.front().dies_with_trainer) {
    caller_.Cancel(attempt->call);
    attempt->call = 0;
  }
  std::deque<Fact> left;
  for (Fact& fact : attempt->outbox) {
    if (!fact.dies_with_trainer) left.push_back(std::move(fact));
  }
  attempt->outbox = std::move(left);
  if (attempt->unsent_from < attempt->lines) QueueLogs(attempt);

  v1::ReportAttemptFinishedRequest request;
  *request.mutable_lease() = attempt->lease;
  if (cause == v1::FAILURE_CAUSE_UNSPECIFIED) {
    request.mutable_report()->set_steps(attempt->step);
  } else {
    request.mutable_failure()->set_cause(cause);
  }
  const auto done = [this, key = KeyOf(attempt->lease)](const Answer& answer) {
    if (!answer.ok()) universe_->Fail("nothing_lost", answer.status().ToString());
    ledger_->finishes.insert(key);
    attempts_.erase(key.first);
  };
  Queue(attempt,
        {request, absl::StrCat("Finished ", Name(*attempt), " ", v1::FailureCause_Name(cause)),
         done});
}

void Worker::Queue(Attempt* attempt, Fact fact) {
  attempt->outbox.push_back(std::move(fact));
  SendNext(attempt);
}

void Worker::SendNext(Attempt* attempt) {
  if (attempt->call != 0 || attempt->outbox.empty()) return;
  const Fact& fact = attempt->outbox.front();
  attempt->call =
      caller_.Call(fact.body, fact.what, [this, key = KeyOf(attempt->lease)](const Answer& answer) {
        OnFactAnswered(key.first, key.second, answer);
      });
}

void Worker::OnFactAnswered(const std::string& job_id, int64_t epoch, const Answer& answer) {
  Attempt* attempt = FindAttempt(job_id, epoch);
  if (attempt == nullptr) return;
  if (IsFenced(answer.status())) {
    attempts_.erase(job_id);
    return;
  }
  const Fact fact = std::move(attempt->outbox.front());
  attempt->outbox.pop_front();
  attempt->call = 0;
  if (fact.done) fact.done(answer);
  if (Attempt* present = FindAttempt(job_id, epoch); present != nullptr) SendNext(present);
}

}  // namespace octavo::simulation
