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
              environment_.sender),
      thread_([this] { Run(); }) {}

Attempt::~Attempt() {
  Stop(StopReason::kFenced);
  thread_.join();
}

void Attempt::Stop(StopReason reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stop_reason_.has_value() || reason == StopReason::kFenced) stop_reason_ = reason;
  }
  if (reason == StopReason::kFenced) outbox_.Close();
  (reason == StopReason::kFenced ? kill_ : stop_).Set();
}

bool Attempt::over() const {
  absl::MutexLock lock(&mutex_);
  return over_;
}

std::optional<StopReason> Attempt::stop_reason() const {
  absl::MutexLock lock(&mutex_);
  return stop_reason_;
}

void Attempt::Run() {
  {
    TrainerService service(assignment_, &outbox_);
    const absl::StatusOr<Child::Exit> exit = RunTrainer(&service);
    const std::optional<v1::FinishRequest> finished = service.finished();
    const std::optional<v1::Failure> failure = FailureOf(exit, finished);
    LogInfo("attempt ", lease().job_id(), ".", lease().epoch(),
            " ended: ", failure.has_value() ? failure->message() : "it succeeded");
    outbox_.AddFinished(failure, finished.has_value() ? finished->report() : v1::RunReport());
  }
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
      const auto child,
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
                    .clock = environment_.clock});
  AddLogLines(output.Flush());
  AddLogLines(errors.Flush());
  outbox_.TrainerGone();
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
  return MakeFailure(
      v1::FAILURE_CAUSE_TRAINER_CRASHED,
      absl::StrCat("the trainer ended without a report: ", DescribeExit(exit->wait_status),
                   last_line_.empty() ? "" : "; its last line: ", last_line_));
}

}  // namespace octavo::agent
