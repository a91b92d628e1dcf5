#include "server/rpc/core_loop.h"

#include <algorithm>
#include <future>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::rpc {
namespace {

// Seconds. A commit is one fsync: well under a millisecond on a good SSD, tens of milliseconds on a
// disk.
const std::vector<double> kCommitBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                           0.1,    0.25,  0.5,    1,     2.5,  10};

// After a failed commit, ticks rest this long, so that a full disk is not hammered.
constexpr absl::Duration kRest = absl::Seconds(1);

// A scrape waits at most this long for the loop.
constexpr absl::Duration kSnapshotPatience = absl::Seconds(5);

absl::Status StoppedError() { return absl::UnavailableError("the coordinator is shutting down"); }

template <typename T>
void Append(std::vector<T>* to, std::vector<T> from) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

// Tokens are positions in `waiting`, counted from 1.
struct CoreLoop::Batch {
  std::vector<Answered> waiting;
  core::Effects effects;
  std::vector<Read> reads;
};

absl::StatusOr<std::unique_ptr<CoreLoop>> CoreLoop::Start(const CoreLoopOptions& options,
                                                          std::unique_ptr<storage::Store> store,
                                                          const Clock* clock) {
  auto loop = std::unique_ptr<CoreLoop>(new CoreLoop(options, std::move(store), clock));
  RETURN_IF_ERROR(loop->Recover());
  loop->thread_ = std::thread([raw = loop.get()] { raw->Run(); });
  return loop;
}

CoreLoop::CoreLoop(const CoreLoopOptions& options, std::unique_ptr<storage::Store> store,
                   const Clock* clock)
    : options_(options),
      clock_(clock),
      store_(std::move(store)),
      inspections_(options.inspection_limit),
      commit_seconds_(kCommitBounds) {}

CoreLoop::~CoreLoop() { Stop(); }

void CoreLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void CoreLoop::Post(core::EventBody event, Cost cost, Answered answered) {
  PostPrepared([event = std::move(event)](Context&) mutable { return std::move(event); }, cost,
               std::move(answered));
}

void CoreLoop::PostPrepared(MakeEvent make, Cost cost, Answered answered) {
  Enqueue(
      {.make = std::move(make), .answered = std::move(answered), .read = nullptr, .cost = cost});
}

void CoreLoop::PostRead(Read read) {
  Enqueue({.make = nullptr, .answered = Answered(nullptr), .read = std::move(read), .cost = {}});
}

void CoreLoop::Enqueue(Item item) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      refused = StoppedError();
    } else if (static_cast<int64_t>(queue_.size()) >= options_.queue_limit) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat("queue-limit of ", options_.queue_limit,
                       " waiting requests is reached; try again later"));
    } else if (queued_bytes_ + item.cost.bytes > options_.queue_bytes_limit) {
      refused = absl::ResourceExhaustedError(absl::StrCat("queue-bytes-limit of ",
                                                          options_.queue_bytes_limit,
                                                          " bytes is reached; try again later"));
    } else {
      queued_bytes_ += item.cost.bytes;
      queue_.push_back(std::move(item));
      return;
    }
  }
  // Outside the lock: an answer may run into the loop again.
  if (item.read) {
    item.read(refused);
  } else {
    item.answered.Finish(refused);
  }
}

void CoreLoop::Run() {
  while (true) {
    std::vector<Item> items = Wait();
    const bool idle = items.empty();
    RunBatch(std::move(items));
    absl::MutexLock lock(&mutex_);
    if (stopping_ && idle && queue_.empty()) break;
  }
  inspections_.Expire(absl::InfiniteDuration());
}

std::vector<CoreLoop::Item> CoreLoop::Wait() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration patience =
      std::clamp(next_tick_ - clock_->Monotonic(), absl::ZeroDuration(), options_.tick);
  mutex_.AwaitWithTimeout(absl::Condition(this, &CoreLoop::HasWork), patience);
  std::vector<Item> items;
  while (!queue_.empty() && static_cast<int64_t>(items.size()) < options_.batch_limit) {
    queued_bytes_ -= queue_.front().cost.bytes;
    items.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return items;
}

absl::Status CoreLoop::Recover() {
  core_ = nullptr;
  ASSIGN_OR_RETURN(core::DurableState state, store_->Load());
  core_ = core::Core::Create(options_.core, std::move(state), clock_->Now(), clock_->Monotonic());
  return absl::OkStatus();
}

CoreLoop::Context CoreLoop::MakeContext() {
  return {*core_, *store_, job_listeners_, sessions_, inspections_};
}

void CoreLoop::RunBatch(std::vector<Item> items) {
  if (core_ == nullptr) {
    if (absl::Status broken = Recover(); !broken.ok()) {
      next_tick_ = clock_->Monotonic() + kRest;
      const absl::Status status =
          absl::UnavailableError(absl::StrCat("the store cannot be read: ", broken.message()));
      for (Item& item : items) item.read ? item.read(status) : item.answered.Finish(status);
      return;
    }
  }
  Batch batch;
  for (Item& item : items) {
    if (item.read) {
      batch.reads.push_back(std::move(item.read));
    } else if (clock_->Monotonic() > item.cost.deadline) {
      item.answered.Finish(
          absl::DeadlineExceededError("the request waited longer than its deadline"));
    } else {
      Context context = MakeContext();
      absl::StatusOr<core::EventBody> body = item.make(context);
      if (body.ok()) {
        Apply(*std::move(body), std::move(item.answered), &batch);
      } else {
        item.answered.Finish(body.status());
      }
    }
  }
  TickIfDue(&batch);
  if (absl::Status failed = Commit(batch); !failed.ok()) {
    for (Answered& answered : batch.waiting) answered.Finish(failed);
    if (absl::Status broken = Recover(); !broken.ok())
      LogError("reading the store back: ", broken.ToString());
    next_tick_ = clock_->Monotonic() + kRest;
    for (Read& read : batch.reads) read(failed);
    return;
  }
  Release(std::move(batch));
}

void CoreLoop::Apply(core::EventBody body, Answered answered, Batch* batch) {
  batch->waiting.push_back(std::move(answered));
  core::Effects effects = core_->Apply({.token = batch->waiting.size(), .body = std::move(body)},
                                       clock_->Now(), clock_->Monotonic());
  Append(&batch->effects.writes, std::move(effects.writes));
  Append(&batch->effects.answers, std::move(effects.answers));
  Append(&batch->effects.signals, std::move(effects.signals));
  Append(&batch->effects.changed_jobs, std::move(effects.changed_jobs));
}

void CoreLoop::TickIfDue(Batch* batch) {
  const absl::Duration now = clock_->Monotonic();
  if (now < next_tick_) return;
  next_tick_ = now + options_.tick;
  Apply(core::Tick{}, Answered(nullptr), batch);
  Sweep();
}

void CoreLoop::Sweep() {
  job_listeners_.Sweep();
  inspections_.Expire(clock_->Monotonic());
  std::vector<std::string> gone;
  for (const auto& [job_id, latest] : latest_.jobs()) {
    const v1::Job* job = core_->FindJob(job_id);
    const bool waits = job != nullptr && job->state() == v1::JOB_STATE_PENDING;
    if (job == nullptr ||
        (!waits && !telemetry::IsExported(*job, clock_->Now(), options_.series_retention))) {
      gone.push_back(job_id);
    }
  }
  for (const std::string& job_id : gone) latest_.Forget(job_id);
}

absl::Status CoreLoop::Commit(const Batch& batch) {
  if (batch.effects.writes.empty()) return absl::OkStatus();
  const absl::Duration start = clock_->Monotonic();
  const absl::Status status = store_->Commit(batch.effects.writes);
  commit_seconds_.Observe(absl::ToDoubleSeconds(clock_->Monotonic() - start));
  if (!status.ok()) {
    ++commit_failures_;
    LogError("nothing of this batch was stored: ", status.ToString());
  }
  return status;
}

void CoreLoop::Release(Batch batch) {
  for (core::Answer& answer : batch.effects.answers) {
    if (answer.token == 0) continue;
    CHECK(answer.token <= batch.waiting.size());
    Answered& answered = batch.waiting[answer.token - 1];
    if (answer.status.ok()) {
      answered.Finish(std::move(answer.body));
    } else {
      answered.Finish(answer.status);
    }
  }
  for (core::Signal& signal : batch.effects.signals)
    sessions_.Send(signal.worker, std::move(signal.message));
  PublishNews(batch.effects);
  Context context = MakeContext();
  for (Read& read : batch.reads) read(&context);
}

void CoreLoop::PublishNews(const core::Effects& effects) {
  std::map<std::string, int64_t> news;  // job id -> lowest step with new points, 0 without
  for (const std::string& job_id : effects.changed_jobs) news.emplace(job_id, 0);
  for (const core::Write& write : effects.writes) {
    if (const auto* logs = std::get_if<core::PutLogs>(&write)) news.emplace(logs->cursor.job_id, 0);
    const auto* metrics = std::get_if<core::PutMetrics>(&write);
    if (metrics == nullptr) continue;
    latest_.Update(metrics->job_id, metrics->points);
    int64_t& first = news.emplace(metrics->job_id, 0).first->second;
    for (const v1::MetricPoint& point : metrics->points) {
      first = first == 0 ? point.step() : std::min(first, point.step());
    }
  }
  for (const auto& [job_id, first_step] : news) {
    const v1::Job* job = core_->FindJob(job_id);
    if (job == nullptr || !job_listeners_.HasListeners(job_id)) continue;
    job_listeners_.Publish({std::make_shared<const v1::Job>(*job), first_step});
  }
}

telemetry::Snapshot CoreLoop::Describe() {
  telemetry::Snapshot snapshot;
  telemetry::DescribeCore(*core_, latest_, clock_->Now(), options_.series_retention, &snapshot);
  snapshot.commit_seconds = commit_seconds_;
  snapshot.commit_failures = commit_failures_;
  absl::MutexLock lock(&mutex_);
  snapshot.queued_events = static_cast<int64_t>(queue_.size());
  return snapshot;
}

absl::StatusOr<telemetry::Snapshot> CoreLoop::TakeSnapshot() {
  // Shared, because the loop may come to it after this call has lost patience.
  auto promise = std::make_shared<std::promise<absl::StatusOr<telemetry::Snapshot>>>();
  auto future = promise->get_future();
  PostRead([this, promise](absl::StatusOr<Context*> context) {
    if (context.ok()) {
      promise->set_value(Describe());
    } else {
      promise->set_value(context.status());
    }
  });
  if (future.wait_for(absl::ToChronoSeconds(kSnapshotPatience)) != std::future_status::ready) {
    return absl::UnavailableError(absl::StrCat("the event loop did not answer within ",
                                               absl::FormatDuration(kSnapshotPatience)));
  }
  return future.get();
}

}  // namespace octavo::rpc
