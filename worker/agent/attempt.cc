#include "worker/agent/attempt.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::agent {
namespace {

v1::Failure MakeFailure(v1::FailureCause cause, const std::string& message) {
  v1::Failure failure;
  failure.set_cause(cause);
  failure.set_message(message);
  return failure;
}

}  // namespace

Attempt::Attempt(v1::Assignment assignment, Environment environment)
    : assignment_(std::move(assignment)),
      environment_(std::move(environment)),
      outbox_({.lease = assignment_.lease(),
               .log_bytes = environment_.pending_log_bytes,
               .metric_points = environment_.pending_metric_points,
               .backoff = {},
               .seed = RandomSeed(),
               .on_fenced = [this] { Stop(StopReason::kFenced); }},
              environment_.sender) {}

Attempt::~Attempt() {
  Stop(StopReason::kFenced);
  thread_.join();  // Stop has begun it, if nobody did before
}

bool Attempt::Begin(DeviceUse use) {
  absl::MutexLock lock(&mutex_);
  if (begun_) return false;
  begun_ = true;
  device_use_ = use;
  return true;
}

void Attempt::Start() {
  if (Begin(DeviceUse::kUses)) thread_ = std::thread([this] { Run(); });
}

void Attempt::Refuse(v1::Failure failure) {
  if (!Begin(DeviceUse::kNone)) return;
  LogWarning("attempt ", lease().job_id(), ".", lease().epoch(),
             " is refused: ", failure.message());
  thread_ = std::thread([this, failure = std::move(failure)] { ReportEnd(failure, {}); });
}

void Attempt::Stop(StopReason reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stop_reason_.has_value() || reason == StopReason::kFenced) stop_reason_ = reason;
  }
  if (reason == StopReason::kFenced) outbox_.Close();
  (reason == StopReason::kFenced ? kill_ : stop_).Set();
  if (Begin(DeviceUse::kNone)) {  // it was waiting
    thread_ = std::thread([this] { ReportEnd(FailureOfStop(), {}); });
  }
}

bool Attempt::over() const {
  absl::MutexLock lock(&mutex_);
  return over_;
}

std::optional<StopReason> Attempt::stop_reason() const {
  absl::MutexLock lock(&mutex_);
  return stop_reason_;
}

Attempt::DeviceUse Attempt::device_use() const {
  absl::MutexLock lock(&mutex_);
  return device_use_;
}

std::unique_ptr<Child> Attempt::TakeStuckTrainer() {
  absl::MutexLock lock(&mutex_);
  return std::move(stuck_trainer_);
}

void Attempt::KeepStuckTrainer(std::unique_ptr<Child> child) {
  LogError("attempt ", lease().job_id(), ".", lease().epoch(), ": process ", child->pid(),
           " was killed and does not end");
  absl::MutexLock lock(&mutex_);
  stuck_trainer_ = std::move(child);
  device_use_ = DeviceUse::kStuck;
}

void Attempt::Run() {
  TrainerService service(assignment_, &outbox_);
  const absl::StatusOr<Child::Exit> exit = RunTrainer(&service);
  {
    absl::MutexLock lock(&mutex_);
    if (device_use_ == DeviceUse::kUses) device_use_ = DeviceUse::kNone;
  }
  const std::optional<v1::FinishRequest> finished = service.finished();
  ReportEnd(FailureOf(exit, finished), finished.has_value() ? finished->report() : v1::RunReport());
}

void Attempt::ReportEnd(const std::optional<v1::Failure>& failure, const v1::RunReport& report) {
  LogInfo("attempt ", lease().job_id(), ".", lease().epoch(),
          " ended: ", failure.has_value() ? failure->message() : "it succeeded");
  outbox_.AddFinished(failure, report);
  outbox_.AwaitClosed(absl::InfiniteDuration());
  {
    absl::MutexLock lock(&mutex_);
    over_ = true;
  }
  environment_.on_over();
}

absl::StatusOr<Child::Exit> Attempt::RunTrainer(TrainerService* service) {
  const std::string socket = absl::StrCat(environment_.socket_folder, "/", lease().job_id(), ".",
                                          lease().epoch(), ".sock");
  ASSIGN_OR_RETURN(const auto server, SocketServer::Start(socket, service));
  const std::string threads = absl::StrCat(environment_.threads);
  ASSIGN_OR_RETURN(
      std::unique_ptr<Child> child,
      Child::Spawn(
          {.arguments = {environment_.trainer, absl::StrCat("--agent=unix:", socket),
                         absl::StrCat("--memory-bytes=", environment_.memory_bytes),
                         absl::StrCat("--threads=", threads),
                         absl::StrCat("--stop-grace-ms=",
                                      absl::ToInt64Milliseconds(environment_.stop_grace))},
           // Idle threads sleep: the agent and other trainers need the cores.
           .environment = {"OMP_WAIT_POLICY=passive", absl::StrCat("OMP_NUM_THREADS=", threads)}}));
  LogInfo("attempt ", lease().job_id(), ".", lease().epoch(), " runs as process ", child->pid());
  outbox_.AddStarted();
  LineCutter output;
  LineCutter errors;
  const Child::Exit exit =
      child->Watch({.input = "",
                    .on_output = [&](absl::string_view bytes) { AddLogLines(output.Add(bytes)); },
                    .on_error_output = [&](absl::string_view b) { AddLogLines(errors.Add(b)); },
                    .stop = &stop_,
                    .stop_grace = environment_.stop_grace,
                    .kill = &kill_,
                    .kill_signal = environment_.kill_signal,
                    .death_time = environment_.death_time,
                    .clock = environment_.clock});
  AddLogLines(output.Flush());
  AddLogLines(errors.Flush());
  outbox_.TrainerGone();
  if (exit.stuck) KeepStuckTrainer(std::move(child));
  return exit;
}

void Attempt::AddLogLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    outbox_.AddLog(line, absl::ToUnixMillis(environment_.clock->Now()));
  }
  if (!lines.empty()) last_line_ = lines.back();
}

std::optional<v1::Failure> Attempt::FailureOf(
    const absl::StatusOr<Child::Exit>& exit,
    const std::optional<v1::FinishRequest>& finished) const {
  if (!exit.ok()) {
    return MakeFailure(v1::FAILURE_CAUSE_INTERNAL,
                       absl::StrCat("starting the trainer: ", exit.status().message()));
  }
  if (finished.has_value()) {
    if (finished->has_failure()) return finished->failure();
    return std::nullopt;
  }
  std::optional<v1::Failure> failure = FailureOfStop();
  if (!failure.has_value()) {
    failure = MakeFailure(
        v1::FAILURE_CAUSE_TRAINER_CRASHED,
        absl::StrCat("the trainer ended without a report: ", DescribeExit(exit->wait_status),
                     last_line_.empty() ? "" : "; its last line: ", last_line_));
  }
  if (exit->stuck) {
    failure->set_message(
        absl::StrCat(failure->message(), "; its process was killed and does not end"));
  }
  return failure;
}

std::optional<v1::Failure> Attempt::FailureOfStop() const {
  switch (stop_reason().value_or(StopReason::kFenced)) {
    case StopReason::kRequested:
      return MakeFailure(v1::FAILURE_CAUSE_CANCELLED, "stopped as the coordinator asked");
    case StopReason::kOutOfContact:
      return MakeFailure(
          v1::FAILURE_CAUSE_WORKER_LOST,
          absl::StrCat("the worker stopped the trainer: it did not reach the coordinator for ",
                       absl::FormatDuration(environment_.out_of_contact_limit),
                       ", its --out-of-contact-limit"));
    case StopReason::kShutdown:
      return MakeFailure(v1::FAILURE_CAUSE_WORKER_LOST, "the worker is shutting down");
    case StopReason::kFenced:
      break;  // not stopped, or nobody listens
  }
  return std::nullopt;
}

}  // namespace octavo::agent
