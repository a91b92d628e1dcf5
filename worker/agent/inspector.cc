#include "worker/agent/inspector.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace octavo::agent {

Inspector::Inspector(const Config* config, v1::WorkerIdentity worker, Coordinator* coordinator,
                     const Clock* clock)
    : config_(config),
      worker_(std::move(worker)),
      coordinator_(coordinator),
      clock_(clock),
      thread_([this] { Run(); }) {}

Inspector::~Inspector() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stop_.Set();
  thread_.join();
}

void Inspector::Add(v1::Inspect inspect) {
  absl::MutexLock lock(&mutex_);
  if (static_cast<int64_t>(queue_.size()) >= config_->inspection_queue) {
    LogWarning("dropped inspection ", inspect.inspection_id(), ": ", queue_.size(),
               " wait already");
    return;
  }
  queue_.push_back(std::move(inspect));
}

void Inspector::Run() {
  while (true) {
    v1::Inspect inspect;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&has_work));
      if (stopping_) return;
      inspect = std::move(queue_.front());
      queue_.pop_front();
    }
    // Not repeated: the question has a deadline, and can be asked again.
    const absl::Status reported = coordinator_->ReportInspection(Answer(inspect));
    if (!reported.ok()) {
      LogWarning("inspection ", inspect.inspection_id(), ": ", reported.message());
    }
  }
}

v1::ReportInspectionRequest Inspector::Answer(const v1::Inspect& inspect) {
  v1::ReportInspectionRequest request;
  *request.mutable_worker() = worker_;
  request.set_inspection_id(inspect.inspection_id());
  const absl::StatusOr<std::string> output =
      RunProgram({.arguments = {config_->trainer, "--inspect"},
                  .environment = {"OMP_WAIT_POLICY=passive"},
                  .input = inspect.spec().SerializeAsString(),
                  .time_limit = config_->inspection_time,
                  .output_limit_bytes = config_->inspection_output_bytes,
                  .stop = &stop_,
                  .clock = clock_});
  v1::ValidateJobResponse answer;
  if (!output.ok() || !answer.ParseFromString(*output)) {
    request.add_warnings(absl::StrCat(
        "worker ", worker_.worker_id(), " could not inspect the inputs: ",
        output.ok() ? "the trainer's answer is not readable" : output.status().message()));
    return request;
  }
  *request.mutable_violations() = answer.violations();
  *request.mutable_warnings() = answer.warnings();
  if (answer.has_plan()) *request.mutable_plan() = answer.plan();
  return request;
}

}  // namespace octavo::agent
