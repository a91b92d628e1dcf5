// A core with virtual time, a store of its writes and short words for its events. After every event
// a core rebuilt from the writes must look the same.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/core/core.h"
#include "tests/support/durable_map.h"

namespace octavo::core {

constexpr int64_t kGibibyte = int64_t{1} << 30;

struct JobOptions {
  std::string request_id = "";  // empty: a fresh one
  std::string device_kind = "cpu";
  int32_t priority = 0;
  int64_t memory_bytes = kGibibyte;
  int32_t max_restarts = 10;
  int32_t keep = 2;
  std::string baseline = "";
};

class Scene {
 public:
  explicit Scene(const Settings& settings = {}) : settings_(settings) { Restart(); }

  // A new process over the same store. Workers must register again.
  void Restart() { core_ = std::make_unique<Core>(settings_, durable.State(), now_); }

  Effects Apply(Observation body) {
    Effects effects = core_->Observe(body, Now());
    answer = effects.answer;
    return WithUpkeep(std::move(effects));
  }
  Effects Apply(Request body) {
    Effects effects = core_->Decide(body, Now());
    answer = effects.answer;
    Commit();
    return WithUpkeep(std::move(effects));
  }
  absl::Status StatusOf(Observation body) {
    Apply(std::move(body));
    return answer.status();
  }
  absl::Status StatusOf(Request body) {
    Apply(std::move(body));
    return answer.status();
  }

  // Time passes in ticks, without a word from any worker.
  void Pass(absl::Duration duration) {
    for (absl::Duration left = duration; left > absl::ZeroDuration(); left -= settings_.heartbeat) {
      now_ += std::min(left, settings_.heartbeat);
      WithUpkeep({});
    }
  }
  // The coordinator stands still.
  void Freeze(absl::Duration duration) { now_ += duration; }

  v1::Job Submit(const JobOptions& options = {}) {
    EXPECT_TRUE(TrySubmit(options).ok());
    return Job(std::get<v1::Job>(*answer).id());
  }
  absl::Status TrySubmit(const JobOptions& options = {}) {
    const int number = ++submits_;
    SubmitJob submit;
    submit.request.set_request_id(options.request_id.empty() ? absl::StrCat("request-", number)
                                                             : options.request_id);
    v1::JobSpec& spec = *submit.request.mutable_spec();
    spec.set_priority(options.priority);
    spec.mutable_resources()->set_device_kind(options.device_kind);
    spec.mutable_retries()->set_max_restarts(options.max_restarts);
    spec.add_stages()->mutable_checkpoint()->set_keep(options.keep);
    spec.mutable_stages(0)->mutable_divergence()->set_baseline_job(options.baseline);
    submit.job_id = absl::StrCat("job-", number);
    submit.spec_sha256 = spec.SerializeAsString();
    submit.memory_bytes = options.memory_bytes;
    return StatusOf(submit);
  }

  v1::WorkerIdentity Identity(const std::string& worker, const std::string& incarnation = "a") {
    v1::WorkerIdentity identity;
    identity.set_worker_id(worker);
    identity.set_incarnation(incarnation);
    return identity;
  }
  static v1::Device Cpu(int64_t memory_bytes = 8 * kGibibyte, int32_t index = 0) {
    v1::Device device;
    device.set_kind("cpu");
    device.set_index(index);
    device.set_memory_bytes(memory_bytes);
    return device;
  }
  v1::RegisterWorkerResponse Register(const v1::WorkerIdentity& worker,
                                      const std::vector<v1::Device>& devices = {Cpu()},
                                      const std::vector<v1::LeaseIdentity>& running = {}) {
    RegisterWorker body;
    *body.request.mutable_worker() = worker;
    body.request.mutable_devices()->Assign(devices.begin(), devices.end());
    body.request.mutable_running()->Assign(running.begin(), running.end());
    EXPECT_TRUE(StatusOf(body).ok()) << answer.status();
    return std::get<v1::RegisterWorkerResponse>(*answer);
  }
  // The answer to a heartbeat together with what else was sent to the worker; empty when nothing
  // was.
  v1::SessionResponse Beat(const v1::WorkerIdentity& worker,
                           const std::vector<v1::LeaseIdentity>& running = {}) {
    Heartbeat body;
    *body.request.mutable_worker() = worker;
    body.request.set_sequence(++sequence_);
    body.request.mutable_running()->Assign(running.begin(), running.end());
    return SentTo(worker, Apply(body));
  }
  // Registers, heartbeats once and answers with what the worker was given.
  v1::SessionResponse Join(const std::string& worker,
                           const std::vector<v1::Device>& devices = {Cpu()}) {
    Register(Identity(worker), devices);
    return Beat(Identity(worker));
  }
  // As long as the worker heartbeats every settings.heartbeat.
  void PassBeating(absl::Duration duration, const v1::WorkerIdentity& worker,
                   const std::vector<v1::LeaseIdentity>& running = {}) {
    for (absl::Duration left = duration; left > absl::ZeroDuration(); left -= settings_.heartbeat) {
      Pass(settings_.heartbeat);
      Beat(worker, running);
    }
  }
  static v1::SessionResponse SentTo(const v1::WorkerIdentity& worker, const Effects& effects) {
    v1::SessionResponse all;
    for (const Signal& signal : effects.signals) {
      if (signal.worker.worker_id() == worker.worker_id()) all.MergeFrom(signal.message);
    }
    return all;
  }

  // The lease of the job's newest attempt.
  v1::LeaseIdentity LeaseOf(const std::string& job_id) {
    const v1::Job job = Job(job_id);
    v1::LeaseIdentity lease;
    lease.set_job_id(job_id);
    lease.set_epoch(job.epoch());
    if (job.attempts_size() > 0) {
      const v1::Attempt& attempt = *job.attempts().rbegin();
      *lease.mutable_worker() = Identity(attempt.worker_id(), attempt.incarnation());
    }
    return lease;
  }
  // As a reader sees it.
  v1::Job Job(const std::string& job_id) { return core_->Describe(*core_->jobs().Find(job_id)); }
  std::vector<v1::Worker> Workers() { return core_->ListWorkers("", 1000000); }
  std::vector<std::string> JobsIn(v1::JobState state) {
    std::vector<std::string> ids;
    for (const JobPointer& record : core_->jobs().List(0, 1000000, {state})) {
      ids.push_back(record->job.id());
    }
    return ids;
  }

  absl::Status Start(const v1::LeaseIdentity& lease) {
    v1::ReportAttemptStartedRequest request;
    *request.mutable_lease() = lease;
    return StatusOf(request);
  }
  absl::Status Finish(const v1::LeaseIdentity& lease,
                      v1::FailureCause cause = v1::FAILURE_CAUSE_UNSPECIFIED) {
    v1::ReportAttemptFinishedRequest request;
    *request.mutable_lease() = lease;
    if (cause != v1::FAILURE_CAUSE_UNSPECIFIED) {
      request.mutable_failure()->set_cause(cause);
      request.mutable_failure()->set_message("as told");
    } else {
      request.mutable_report()->set_steps(7);
    }
    return StatusOf(request);
  }
  absl::StatusOr<std::vector<std::string>> Commit(const v1::LeaseIdentity& lease, int64_t step,
                                                  const std::string& folder) {
    v1::CommitCheckpointRequest request;
    *request.mutable_lease() = lease;
    request.mutable_checkpoint()->set_step(step);
    request.mutable_checkpoint()->set_folder(folder);
    if (absl::Status status = StatusOf(request); !status.ok()) return status;
    const auto& response = std::get<v1::CommitCheckpointResponse>(*answer);
    return std::vector<std::string>(response.obsolete_folders().begin(),
                                    response.obsolete_folders().end());
  }
  absl::Status PushLogs(const v1::LeaseIdentity& lease, int64_t sequence,
                        const std::vector<std::string>& lines) {
    v1::PushLogsRequest request;
    *request.mutable_lease() = lease;
    request.set_sequence(sequence);
    for (const std::string& line : lines) request.add_lines()->set_text(line);
    return StatusOf(request);
  }
  std::vector<std::string> Logs(const std::string& job_id) {
    std::vector<std::string> texts;
    for (const auto& [offset, line] : durable.logs[job_id]) {
      EXPECT_EQ(offset, static_cast<int64_t>(texts.size()));
      texts.push_back(line.text());
    }
    return texts;
  }

  Core& core() { return *core_; }
  absl::Duration now() const { return now_; }
  absl::Time Wall() const { return absl::FromUnixSeconds(1700000000) + now_; }

  testing_support::DurableMap durable;
  absl::StatusOr<AnswerBody> answer = AnswerBody();  // to the last event

 private:
  Moment Now() const { return {Wall(), now_}; }

  void Commit() {
    for (const Write& write : core_->writes()) durable.Apply(write);
    core_->Commit();
    ExpectRebuildsEqual();
  }

  // What the core asks for by itself, until it is content.
  Effects WithUpkeep(Effects effects) {
    do {
      for (Signal& signal : core_->Upkeep(Now())) effects.signals.push_back(std::move(signal));
      Commit();
    } while (core_->NeedsUpkeep());
    return effects;
  }

  void ExpectRebuildsEqual() {
    const Core rebuilt(settings_, durable.State(), now_);
    const auto before = core_->jobs().List(0, 1000000, {});
    const auto after = rebuilt.jobs().List(0, 1000000, {});
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i]->order, after[i]->order);
      EXPECT_EQ(before[i]->job.SerializeAsString(), after[i]->job.SerializeAsString());
    }
  }

  Settings settings_;
  absl::Duration now_ = absl::Seconds(1000);
  std::unique_ptr<Core> core_;
  int submits_ = 0;
  int64_t sequence_ = 0;
};

inline bool IsFenced(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition &&
         status.message().substr(0, 12) == "LEASE_FENCED";
}

}  // namespace octavo::core
