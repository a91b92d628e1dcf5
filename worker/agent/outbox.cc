#include "worker/agent/outbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::agent {
namespace {

// worker.proto allows 64 KiB and 256 KiB a batch; the rest is for the envelope.
constexpr size_t kMetricBatchBytes = 60 << 10;
constexpr size_t kLogBatchBytes = 240 << 10;
constexpr int64_t kLineOverheadBytes = 64;  // of a queued line beside its text

}  // namespace

Outbox::Outbox(Options options, FactSender* sender)
    : options_(std::move(options)), sender_(sender), thread_([this] { Run(); }) {}

Outbox::~Outbox() {
  Close();
  thread_.join();
}

void Outbox::AddStarted() {
  v1::ReportAttemptStartedRequest request;
  *request.mutable_lease() = options_.lease;
  absl::MutexLock lock(&mutex_);
  orders_.push_back(std::make_shared<Order>(Order{std::move(request), std::nullopt}));
}

void Outbox::AddLog(std::string text, int64_t time_unix_ms) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  const int64_t bytes = static_cast<int64_t>(text.size()) + kLineOverheadBytes;
  if (log_bytes_ + bytes > options_.log_bytes) {
    ++dropped_lines_;
    dropped_time_unix_ms_ = time_unix_ms;
    return;
  }
  NoteDroppedLines();
  v1::LogLine& line = logs_.emplace_back();
  line.set_text(std::move(text));
  line.set_time_unix_ms(time_unix_ms);
  log_bytes_ += bytes;
}

void Outbox::NoteDroppedLines() {
  if (dropped_lines_ == 0) return;
  v1::LogLine& line = logs_.emplace_back();
  line.set_text(absl::StrCat("[", std::exchange(dropped_lines_, 0),
                             " lines dropped: written faster than the coordinator takes them]"));
  line.set_time_unix_ms(dropped_time_unix_ms_);
  log_bytes_ += static_cast<int64_t>(line.text().size()) + kLineOverheadBytes;
}

absl::Status Outbox::AddMetrics(std::vector<v1::MetricPoint> points) {
  absl::MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || trainer_gone_ ||
           static_cast<int64_t>(metrics_.size()) < options_.metric_points;
  };
  mutex_.Await(absl::Condition(&has_room));
  if (closed_ || trainer_gone_) return absl::AbortedError("the attempt is over");
  std::move(points.begin(), points.end(), std::back_inserter(metrics_));
  return absl::OkStatus();
}

absl::Status Outbox::BeginCheckpoint(int64_t step, const std::string& folder) {
  v1::BeginCheckpointRequest request;
  *request.mutable_lease() = options_.lease;
  request.set_step(step);
  request.set_folder(folder);
  return Await(std::move(request)).status();
}

absl::StatusOr<v1::CommitCheckpointResponse> Outbox::CommitCheckpoint(v1::Checkpoint checkpoint) {
  v1::CommitCheckpointRequest request;
  *request.mutable_lease() = options_.lease;
  checkpoint.set_epoch(options_.lease.epoch());
  *request.mutable_checkpoint() = std::move(checkpoint);
  return Await(std::move(request));
}

absl::StatusOr<v1::CommitCheckpointResponse> Outbox::Await(Fact fact) {
  const auto order = std::make_shared<Order>(Order{std::move(fact), std::nullopt});
  absl::MutexLock lock(&mutex_);
  if (!closed_ && !trainer_gone_) orders_.push_back(order);
  const auto answered = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return order->answer.has_value() || closed_ || trainer_gone_;
  };
  mutex_.Await(absl::Condition(&answered));
  if (order->answer.has_value()) return *order->answer;
  return absl::AbortedError("the attempt is over");
}

void Outbox::TrainerGone() {
  absl::MutexLock lock(&mutex_);
  trainer_gone_ = true;
}

void Outbox::AddFinished(std::optional<v1::Failure> failure, const v1::RunReport& report) {
  v1::ReportAttemptFinishedRequest request;
  *request.mutable_lease() = options_.lease;
  if (failure.has_value()) {
    *request.mutable_failure() = *std::move(failure);
  } else {
    *request.mutable_report() = report;
  }
  absl::MutexLock lock(&mutex_);
  NoteDroppedLines();
  orders_.push_back(std::make_shared<Order>(Order{std::move(request), std::nullopt}));
}

void Outbox::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

bool Outbox::AwaitClosed(absl::Duration time_limit) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&closed_), time_limit);
}

bool Outbox::closed() const {
  absl::MutexLock lock(&mutex_);
  return closed_;
}

bool Outbox::HasWork() const {
  return closed_ || !orders_.empty() || !metrics_.empty() || !logs_.empty();
}

Fact Outbox::Next() {
  if (orders_.empty()) {
    if (!metrics_.empty()) return TakeMetrics();
    return TakeLogs();
  }
  const Fact& first = orders_.front()->fact;
  const bool last = std::holds_alternative<v1::ReportAttemptFinishedRequest>(first);
  const bool commit = std::holds_alternative<v1::CommitCheckpointRequest>(first);
  if ((last || commit) && !metrics_.empty()) return TakeMetrics();
  if (last && !logs_.empty()) return TakeLogs();
  return first;
}

v1::PushMetricsRequest Outbox::TakeMetrics() {
  v1::PushMetricsRequest request;
  *request.mutable_lease() = options_.lease;
  for (size_t bytes = 0; !metrics_.empty() && bytes < kMetricBatchBytes; metrics_.pop_front()) {
    bytes += metrics_.front().ByteSizeLong() + 4;
    *request.add_points() = std::move(metrics_.front());
  }
  return request;
}

v1::PushLogsRequest Outbox::TakeLogs() {
  v1::PushLogsRequest request;
  *request.mutable_lease() = options_.lease;
  request.set_sequence(log_sequence_++);
  for (size_t bytes = 0; !logs_.empty(); logs_.pop_front()) {
    bytes += logs_.front().ByteSizeLong() + 4;
    if (bytes > kLogBatchBytes) break;
    log_bytes_ -= static_cast<int64_t>(logs_.front().text().size()) + kLineOverheadBytes;
    *request.add_lines() = std::move(logs_.front());
  }
  return request;
}

void Outbox::Run() {
  Backoff backoff(options_.backoff, options_.seed);
  while (true) {
    Fact fact;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Outbox::HasWork));
      if (closed_) return;
      fact = Next();
    }
    while (true) {
      const absl::StatusOr<v1::CommitCheckpointResponse> answer = sender_->Send(fact);
      const Verdict verdict = VerdictOf(answer.status());
      if (verdict != Verdict::kRetry) {
        Answered(fact, answer, verdict);
        backoff.Reset();
        break;
      }
      if (AwaitClosed(backoff.Next())) return;
    }
  }
}

void Outbox::Answered(const Fact& fact, const absl::StatusOr<v1::CommitCheckpointResponse>& answer,
                      Verdict verdict) {
  const bool batch = std::holds_alternative<v1::PushMetricsRequest>(fact) ||
                     std::holds_alternative<v1::PushLogsRequest>(fact);
  if (verdict != Verdict::kDelivered) {
    LogWarning("attempt ", options_.lease.job_id(), ".", options_.lease.epoch(),
               ": the coordinator refused what it was told: ", answer.status().message());
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!batch) {
      orders_.front()->answer = answer;
      orders_.pop_front();
    }
    const bool last = std::holds_alternative<v1::ReportAttemptFinishedRequest>(fact);
    if (last || verdict == Verdict::kFenced) closed_ = true;
  }
  if (verdict == Verdict::kFenced && options_.on_fenced) options_.on_fenced();
}

}  // namespace octavo::agent
