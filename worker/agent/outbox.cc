#include "worker/agent/outbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::agent {
namespace {

// Below every limit of messages that octavod can be given, which is at least 64 KiB.
constexpr size_t kBatchBytes = 60 << 10;
constexpr int64_t kLineOverheadBytes = 64;  // of a queued line beside its text
constexpr size_t kMaxMetricNames = 256;     // a release has two dozen

}  // namespace

Outbox::Outbox(Options options, FactSender* sender)
    : options_(std::move(options)), sender_(sender), thread_([this] { Run(); }) {}

Outbox::~Outbox() {
  Close();
  thread_.join();
}

std::shared_ptr<Outbox::Order> Outbox::Enqueue(Fact fact) {
  const bool after_metrics = std::holds_alternative<v1::CommitCheckpointRequest>(fact) ||
                             std::holds_alternative<v1::ReportAttemptFinishedRequest>(fact);
  orders_.push_back(std::make_shared<Order>(
      Order{std::move(fact), after_metrics ? metrics_added_ : 0, std::nullopt}));
  return orders_.back();
}

void Outbox::AddStarted() {
  v1::ReportAttemptStartedRequest request;
  *request.mutable_lease() = options_.lease;
  absl::MutexLock lock(&mutex_);
  Enqueue(std::move(request));
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
  line.set_text(
      absl::StrCat("[", std::exchange(dropped_lines_, 0),
                   " lines dropped: the coordinator refused them, or takes them more slowly]"));
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
  for (const v1::MetricPoint& point : points) {
    const size_t name = NameIndex(point.name());
    if (name == kMaxMetricNames) {
      return absl::InvalidArgumentError(
          absl::StrCat("an attempt has at most ", kMaxMetricNames, " metrics"));
    }
    if (metric_names_[name].refused) continue;
    metrics_.push_back({name, point.step(), point.value(), point.time_unix_ms()});
    ++metrics_added_;
  }
  return absl::OkStatus();
}

size_t Outbox::NameIndex(const std::string& name) {
  size_t index = 0;
  while (index < metric_names_.size() && metric_names_[index].text != name) ++index;
  if (index == metric_names_.size() && index < kMaxMetricNames) metric_names_.push_back({name});
  return index;
}

absl::Status Outbox::AddCheckpointBegun(int64_t step, const std::string& folder) {
  v1::BeginCheckpointRequest request;
  *request.mutable_lease() = options_.lease;
  request.set_step(step);
  request.set_folder(folder);
  absl::MutexLock lock(&mutex_);
  if (closed_ || trainer_gone_) return absl::AbortedError("the attempt is over");
  Enqueue(std::move(request));
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitCheckpointResponse> Outbox::CommitCheckpoint(v1::Checkpoint checkpoint) {
  v1::CommitCheckpointRequest request;
  *request.mutable_lease() = options_.lease;
  checkpoint.set_epoch(options_.lease.epoch());
  *request.mutable_checkpoint() = std::move(checkpoint);
  absl::MutexLock lock(&mutex_);
  if (closed_ || trainer_gone_) return absl::AbortedError("the attempt is over");
  const std::shared_ptr<Order> order = Enqueue(std::move(request));
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
  Enqueue(std::move(request));
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
  if (!orders_.empty()) {
    const Order& first = *orders_.front();
    // Not later ones: training goes on, and there would always be some.
    if (metrics_taken_ < first.metrics_before) return TakeMetrics();
    const bool last = std::holds_alternative<v1::ReportAttemptFinishedRequest>(first.fact);
    if (last && !logs_.empty()) return TakeLogs();
    return first.fact;
  }
  logs_turn_ = !logs_turn_;  // so that neither waits for the other to run dry
  if (logs_.empty() || (!logs_turn_ && !metrics_.empty())) return TakeMetrics();
  return TakeLogs();
}

v1::PushMetricsRequest Outbox::TakeMetrics() {
  v1::PushMetricsRequest request;
  *request.mutable_lease() = options_.lease;
  for (size_t bytes = 0; !metrics_.empty() && bytes < kBatchBytes; metrics_.pop_front()) {
    const QueuedPoint& queued = metrics_.front();
    ++metrics_taken_;
    if (metric_names_[queued.name].refused) continue;
    v1::MetricPoint& point = *request.add_points();
    point.set_name(metric_names_[queued.name].text);
    point.set_step(queued.step);
    point.set_value(queued.value);
    point.set_time_unix_ms(queued.time_unix_ms);
    bytes += point.ByteSizeLong() + 4;
  }
  return request;
}

v1::PushLogsRequest Outbox::TakeLogs() {
  v1::PushLogsRequest request;
  *request.mutable_lease() = options_.lease;
  request.set_sequence(log_sequence_);
  for (size_t bytes = 0; !logs_.empty(); logs_.pop_front()) {
    bytes += logs_.front().ByteSizeLong() + 4;
    if (bytes > kBatchBytes) break;
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
    SendUntilAnswered(std::move(fact), &backoff);
  }
}

void Outbox::SendUntilAnswered(Fact fact, Backoff* backoff) {
  while (true) {
    const absl::StatusOr<v1::CommitCheckpointResponse> answer = sender_->Send(fact);
    const Verdict verdict = VerdictOf(answer.status());
    if (verdict == Verdict::kRetry) {
      if (AwaitClosed(backoff->Next())) return;
      continue;
    }
    backoff->Reset();
    if (verdict == Verdict::kRefused && DropRefusedNames(answer.status(), &fact)) continue;
    return Answered(fact, answer, verdict);
  }
}

bool Outbox::DropRefusedNames(const absl::Status& refusal, Fact* fact) {
  auto* metrics = std::get_if<v1::PushMetricsRequest>(fact);
  if (metrics == nullptr) return false;
  absl::MutexLock lock(&mutex_);
  bool found = false;
  for (MetricName& name : metric_names_) {
    if (name.refused ||
        !absl::StrContains(refusal.message(), absl::StrCat("\"", name.text, "\""))) {
      continue;
    }
    LogWarning("attempt ", options_.lease.job_id(), ".", options_.lease.epoch(), ": metric ",
               name.text, " is not sent any more: the coordinator does not know it");
    name.refused = found = true;
    v1::PushMetricsRequest kept;
    for (v1::MetricPoint& point : *metrics->mutable_points()) {
      if (point.name() != name.text) *kept.add_points() = std::move(point);
    }
    metrics->mutable_points()->Swap(kept.mutable_points());
  }
  return found && metrics->points_size() > 0;
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
    if (const auto* logs = std::get_if<v1::PushLogsRequest>(&fact); logs != nullptr) {
      // A refused batch was not stored: its number is still free.
      if (verdict == Verdict::kDelivered) ++log_sequence_;
      if (verdict == Verdict::kRefused) {
        dropped_lines_ += logs->lines_size();
        dropped_time_unix_ms_ = logs->lines(0).time_unix_ms();
      }
    }
    const bool last = std::holds_alternative<v1::ReportAttemptFinishedRequest>(fact);
    if (last || verdict == Verdict::kFenced) closed_ = true;
  }
  if (verdict == Verdict::kFenced && options_.on_fenced) options_.on_fenced();
}

}  // namespace octavo::agent
