#include "server/core/state.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace octavo::core {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(absl::ToUnixSeconds(time));
  timestamp.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(timestamp.seconds()))));
  return timestamp;
}

Effects State::Apply(const Event& event, absl::Time wall, absl::Duration now) {
  effects_ = {};
  wall_ = wall;
  const absl::Duration silence = now - now_;
  now_ = std::max(now_, now);
  if (silence > settings_.unreachable_after) ForgivePause();
  // Before the event, so that a fact that comes after the lapse is refused whether or not a Tick
  // came first.
  Advance();

  Dispatch(event);
  Place();
  FlushTouched();
  return std::move(effects_);
}

void State::Dispatch(const Event& event) {
  const auto answer = [&](AnswerOr result) {
    if (event.token == 0) return;
    effects_.answers.push_back(
        {event.token, result.status(), result.ok() ? *std::move(result) : AnswerBody()});
  };
  // Submits and cancels answer with the job as it is once the whole event is applied.
  const auto answer_error = [&](const absl::Status& status) {
    if (!status.ok()) answer(status);
  };
  const auto answer_status = [&](const absl::Status& status) {
    answer(status.ok() ? AnswerOr(AnswerBody()) : AnswerOr(status));
  };
  std::visit(Overloaded{
                 [&](const SubmitJob& body) { answer_error(Submit(body, event.token)); },
                 [&](const CancelJob& body) { answer_error(Cancel(body, event.token)); },
                 [&](const RegisterWorker& body) { answer(Register(body.request)); },
                 [&](const Heartbeat& body) { answer_status(OnHeartbeat(body.request)); },
                 [&](const SessionClosed& body) { OnSessionClosed(body.worker); },
                 [&](const v1::ReportAttemptStartedRequest& body) { answer(Started(body)); },
                 [&](const v1::ReportAttemptFinishedRequest& body) { answer(Finished(body)); },
                 [&](const v1::BeginCheckpointRequest& body) { answer(Begin(body)); },
                 [&](const v1::CommitCheckpointRequest& body) { answer(Commit(body)); },
                 [&](const v1::PushMetricsRequest& body) { answer(Metrics(body)); },
                 [&](const v1::PushLogsRequest& body) { answer(Logs(body)); },
                 [](const Tick&) {},
             },
             event.body);
}

void State::Touch(JobRecord* record) {
  if (std::exchange(record->touched, true)) return;
  touched_.push_back(record);
}

void State::AnswerWithJob(Token token, JobRecord* record) {
  if (token != 0) job_answers_.emplace_back(token, record);
}

// Jobs come before what refers to them: a store may insist on it.
void State::FlushTouched() {
  std::vector<Write> writes;
  writes.reserve(touched_.size() + effects_.writes.size());
  for (JobRecord* record : touched_) {
    record->touched = false;
    record->job.set_version(record->job.version() + 1);
    writes.push_back(PutJob{record->job, record->order});
    effects_.changed_jobs.push_back(record->job.id());
  }
  touched_.clear();
  std::move(effects_.writes.begin(), effects_.writes.end(), std::back_inserter(writes));
  effects_.writes = std::move(writes);
  for (const auto& [token, record] : job_answers_) {
    effects_.answers.push_back({token, absl::OkStatus(), record->job});
  }
  job_answers_.clear();
}

JobRecord* State::Find(const std::string& job_id) {
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : &found->second;
}

const v1::Job* State::FindJob(const std::string& job_id) const {
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : &found->second.job;
}

std::vector<Core::JobEntry> State::ListJobs(int64_t before, int64_t limit,
                                            const std::vector<v1::JobState>& states) const {
  std::vector<JobEntry> entries;
  auto position = before == 0 ? by_order_.end() : by_order_.lower_bound(before);
  while (position != by_order_.begin() && static_cast<int64_t>(entries.size()) < limit) {
    --position;
    const v1::Job& job = position->second->job;
    if (states.empty() || std::find(states.begin(), states.end(), job.state()) != states.end()) {
      entries.push_back({position->first, &job});
    }
  }
  return entries;
}

std::vector<v1::Worker> State::ListWorkers() const {
  std::vector<v1::Worker> workers;
  workers.reserve(workers_.size());
  for (const auto& [id, record] : workers_) {
    v1::Worker& worker = workers.emplace_back();
    worker.set_id(id);
    worker.set_address(record.address);
    worker.set_version(record.version);
    worker.set_state(record.connected ? v1::WORKER_STATE_CONNECTED : v1::WORKER_STATE_UNREACHABLE);
    *worker.mutable_last_heartbeat_time() = ToTimestamp(record.last_heartbeat_time);
    worker.mutable_devices()->Assign(record.devices.begin(), record.devices.end());
    for (const int64_t order : record.leases) {
      const v1::Job& job = leased_.at(order)->job;
      worker.add_attempt_ids(job.attempts(job.attempts_size() - 1).id());
    }
  }
  return workers;
}

}  // namespace octavo::core
