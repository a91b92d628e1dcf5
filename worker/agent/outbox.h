// What one attempt has to say, in order, until the coordinator has heard it.
//
// A thread sends one fact at a time and repeats it until it is answered. Metrics and logs wait in
// bounded queues and travel in batches; every metric that was added before a commit or the end is
// sent before it, and every log line before the end. While the coordinator is away metrics fill
// their queue and then make the trainer wait: a loss curve with a hole would be compared with
// others as if it had none, and nobody could tell a step that was lost from one that never was.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/agent/backoff.h"
#include "worker/agent/fact.h"

namespace octavo::agent {

class Outbox {
 public:
  struct Options {
    v1::LeaseIdentity lease;
    int64_t log_bytes = 0;      // waiting; beyond it lines are dropped and counted
    int64_t metric_points = 0;  // waiting; beyond it AddMetrics waits
    Backoff::Options backoff;
    uint64_t seed = 0;                // of the backoff
    std::function<void()> on_fenced;  // called once at most, by the outbox's thread
  };
  // `sender` outlives the outbox.
  Outbox(Options options, FactSender* sender);
  ~Outbox();  // gives up what was not delivered
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  void AddStarted();
  void AddLog(std::string line, int64_t time_unix_ms);
  // Blocks while the queue is full. ABORTED once the outbox has closed or the trainer is gone.
  absl::Status AddMetrics(std::vector<v1::MetricPoint> points);
  // Queued, and sent before the commit. ABORTED once the outbox has closed or the trainer is gone.
  absl::Status AddCheckpointBegun(int64_t step, const std::string& folder);
  // Blocks until answered.
  absl::StatusOr<v1::CommitCheckpointResponse> CommitCheckpoint(v1::Checkpoint checkpoint);

  // The trainer has ended: whoever waits on its behalf is answered ABORTED. What is queued is still
  // sent: a checkpoint that it completed and asked to commit is worth having.
  void TrainerGone();
  // The last fact; either is set. The outbox closes when it is delivered.
  void AddFinished(std::optional<v1::Failure> failure, const v1::RunReport& report);
  // Nothing more is sent.
  void Close();
  // False when the time is over before.
  bool AwaitClosed(absl::Duration time_limit);
  bool closed() const;

 private:
  struct Order {  // a fact that somebody may wait for
    Fact fact;
    int64_t metrics_before = 0;  // points that are sent before it, of all that were added
    std::optional<absl::StatusOr<v1::CommitCheckpointResponse>> answer;
  };
  struct MetricName {
    std::string text;
    bool refused = false;  // by a coordinator of another release, which does not know it
  };
  struct QueuedPoint {  // a quarter of a v1::MetricPoint
    size_t name = 0;    // index into metric_names_
    int64_t step = 0;
    double value = 0;
    int64_t time_unix_ms = 0;
  };

  size_t NameIndex(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Order> Enqueue(Fact fact) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  Fact Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::PushMetricsRequest TakeMetrics() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::PushLogsRequest TakeLogs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteDroppedLines() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the points of those names out of a refused batch that the refusal mentions. False when
  // it mentions none, or nothing is left.
  bool DropRefusedNames(const absl::Status& refusal, Fact* fact) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendUntilAnswered(Fact fact, Backoff* backoff) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answered(const Fact& fact, const absl::StatusOr<v1::CommitCheckpointResponse>& answer,
                Verdict verdict) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  FactSender* const sender_;

  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<Order>> orders_ ABSL_GUARDED_BY(mutex_);  // shared with who waits
  std::vector<MetricName> metric_names_ ABSL_GUARDED_BY(mutex_);
  std::deque<QueuedPoint> metrics_ ABSL_GUARDED_BY(mutex_);
  int64_t metrics_added_ ABSL_GUARDED_BY(mutex_) = 0;  // points
  int64_t metrics_taken_ ABSL_GUARDED_BY(mutex_) = 0;  // into batches
  std::deque<v1::LogLine> logs_ ABSL_GUARDED_BY(mutex_);
  int64_t log_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_lines_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_time_unix_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t log_sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // batches that were delivered
  bool logs_turn_ ABSL_GUARDED_BY(mutex_) = false;
  bool trainer_gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace octavo::agent
