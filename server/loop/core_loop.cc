#include "server/loop/core_loop.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::loop {
namespace {

// Seconds. A commit is one fsync: well under a millisecond on a good SSD, tens of milliseconds on a
// disk.
const std::vector<double> kCommitBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                           0.1,    0.25,  0.5,    1,     2.5,  10};

// After a failed write the core's own wishes rest this long, so that a full disk is not hammered.
constexpr absl::Duration kRest = absl::Seconds(1);
// A failed batch is tried request by request for this long; the rest fails as the last one did.
constexpr absl::Duration kTakeApartPatience = absl::Milliseconds(200);
// A disk that stays full is told this often.
constexpr absl::Duration kComplainEvery = absl::Seconds(10);
// Requests of one transaction together: about a tenth of a second of SQLite's time as log lines.
constexpr int64_t kBatchBytes = int64_t{4} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<CoreLoop>> CoreLoop::Open(const CoreLoopOptions& options,
                                                         std::unique_ptr<storage::Store> store,
                                                         const Clock* clock) {
  auto loop = std::unique_ptr<CoreLoop>(new CoreLoop(options, std::move(store), clock));
  ASSIGN_OR_RETURN(core::DurableState state, loop->store_->Load());
  loop->core_ = std::make_unique<core::Core>(options.core, std::move(state), clock->Monotonic());
  return loop;
}

CoreLoop::CoreLoop(const CoreLoopOptions& options, std::unique_ptr<storage::Store> store,
                   const Clock* clock)
    : options_(options),
      clock_(clock),
      store_(std::move(store)),
      inspections_(options.inspection_limit),
      commit_seconds_(kCommitBounds) {}

void CoreLoop::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

void CoreLoop::Observe(core::Observation observation, Cost cost, Answered answered) {
  Observe(MakeObservation([observation = std::move(observation)](Context&) mutable {
            return std::move(observation);
          }),
          cost, std::move(answered));
}

void CoreLoop::Observe(MakeObservation make, Cost cost, Answered answered) {
  Enqueue(&control_, {.observe = std::move(make),
                      .decide = nullptr,
                      .control = nullptr,
                      .answered = std::move(answered),
                      .cost = cost});
}

void CoreLoop::Decide(core::Request request, Cost cost, Answered answered) {
  Decide(
      MakeRequest([request = std::move(request)](Context&) mutable { return std::move(request); }),
      cost, std::move(answered));
}

void CoreLoop::Decide(MakeRequest make, Cost cost, Answered answered) {
  Enqueue(&requests_, {.observe = nullptr,
                       .decide = std::move(make),
                       .control = nullptr,
                       .answered = std::move(answered),
                       .cost = cost});
}

void CoreLoop::Call(Control control) {
  Enqueue(&control_, {.observe = nullptr,
                      .decide = nullptr,
                      .control = std::move(control),
                      .answered = Answered(nullptr),
                      .cost = {}});
}

void CoreLoop::Refuse(Item item, const absl::Status& status) {
  if (item.control) {
    item.control(status);
  } else {
    item.answered.Finish(status);
  }
}

absl::Status CoreLoop::Admit(const Lane& lane, const Item& item) const {
  if (closed_) return absl::UnavailableError("the coordinator is shutting down");
  if (static_cast<int64_t>(lane.items.size()) >= options_.queue_limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "queue-limit of ", options_.queue_limit, " waiting requests is reached; try again later"));
  }
  if (lane.bytes + item.cost.bytes > options_.queue_bytes_limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "queue-bytes-limit of ", options_.queue_bytes_limit, " bytes is reached; try again later"));
  }
  return absl::OkStatus();
}

void CoreLoop::Enqueue(Lane* lane, Item item) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    refused = Admit(*lane, item);
    if (refused.ok()) {
      lane->bytes += item.cost.bytes;
      lane->items.push_back(std::move(item));
      return;
    }
  }
  Refuse(std::move(item), refused);  // outside the lock: an answer may run into the loop again
}

std::vector<CoreLoop::Item> CoreLoop::Take(Lane* lane, int64_t count, int64_t bytes) {
  std::vector<Item> items;
  while (!lane->items.empty() && count > 0 && bytes > 0) {
    Item& item = lane->items.front();
    --count;
    bytes -= item.cost.bytes;
    lane->bytes -= item.cost.bytes;
    items.push_back(std::move(item));
    lane->items.pop_front();
  }
  return items;
}

bool CoreLoop::AwaitWork() {
  const absl::Duration patience =
      more_ ? absl::ZeroDuration()
            : std::clamp(next_tick_ - clock_->Monotonic(), absl::ZeroDuration(), options_.tick);
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &CoreLoop::HasWork), patience);
  return !closed_ || !control_.items.empty() || !requests_.items.empty();
}

void CoreLoop::Finish() { inspections_.Expire(absl::InfiniteDuration()); }

CoreLoop::Context CoreLoop::MakeContext() {
  return {*core_, *store_, job_listeners_, sessions_, inspections_};
}

void CoreLoop::Read(absl::FunctionRef<void(const core::Core&)> read) const {
  absl::ReaderMutexLock lock(&state_mutex_);
  read(*core_);
}

telemetry::Snapshot CoreLoop::TakeSnapshot() const {
  telemetry::Snapshot snapshot;
  {
    absl::ReaderMutexLock lock(&state_mutex_);
    telemetry::DescribeCore(*core_, latest_, clock_->Now(), options_.series_retention, &snapshot);
    snapshot.commit_seconds = commit_seconds_;
    snapshot.commit_failures = commit_failures_;
  }
  absl::MutexLock lock(&mutex_);
  snapshot.queued_events = static_cast<int64_t>(control_.items.size() + requests_.items.size());
  return snapshot;
}

bool CoreLoop::Pass() {
  std::vector<Item> control, requests;
  {
    absl::MutexLock lock(&mutex_);
    control = Take(&control_, options_.queue_limit, std::numeric_limits<int64_t>::max());
    requests = Take(&requests_, options_.batch_limit, kBatchBytes);
  }
  {
    absl::MutexLock lock(&state_mutex_);
    core_->Advance(clock_->Monotonic());
  }
  for (Item& item : control) RunControl(std::move(item));
  std::vector<Unit> units;
  if (WantsUpkeep()) Decide(&units.emplace_back());
  for (Item& item : requests) {
    if (std::optional<Unit> unit = Prepare(std::move(item))) units.push_back(*std::move(unit));
  }
  Settle(std::move(units));
  TickIfDue();
  more_ = WantsUpkeep();
  absl::MutexLock lock(&mutex_);
  return more_ || !control_.items.empty() || !requests_.items.empty();
}

void CoreLoop::RunControl(Item item) {
  Context context = MakeContext();
  if (item.control) return item.control(&context);
  if (IsLate(item))
    return Refuse(std::move(item),
                  absl::DeadlineExceededError("the request waited longer than its deadline"));
  absl::StatusOr<core::Observation> observation = item.observe(context);
  if (!observation.ok()) return item.answered.Finish(observation.status());
  core::Effects effects;
  {
    absl::MutexLock lock(&state_mutex_);
    effects = core_->Observe(*observation, Now());
  }
  item.answered.Finish(std::move(effects.answer));
  Send(std::move(effects.signals));
}

std::optional<CoreLoop::Unit> CoreLoop::Prepare(Item item) {
  if (IsLate(item)) {
    Refuse(std::move(item),
           absl::DeadlineExceededError("the request waited longer than its deadline"));
    return std::nullopt;
  }
  Context context = MakeContext();
  absl::StatusOr<core::Request> request = item.decide(context);
  if (!request.ok()) {
    item.answered.Finish(request.status());
    return std::nullopt;
  }
  Unit unit = {.request = *std::move(request), .answered = std::move(item.answered), .effects = {}};
  Decide(&unit);
  return unit;
}

void CoreLoop::Decide(Unit* unit) {
  absl::MutexLock lock(&state_mutex_);
  if (unit->request) {
    unit->effects = core_->Decide(*unit->request, Now());
  } else {
    unit->effects.signals = core_->Upkeep(Now());
  }
}

absl::Status CoreLoop::Commit() {
  if (core_->writes().empty()) return absl::OkStatus();
  const absl::Duration start = clock_->Monotonic();
  const absl::Status status = store_->Commit(core_->writes());
  const absl::Duration end = clock_->Monotonic();
  if (!status.ok() && end >= complain_after_) {
    complain_after_ = end + kComplainEvery;
    LogError("a write failed; whoever asked for it is told: ", status.ToString());
  }
  absl::MutexLock lock(&state_mutex_);
  commit_seconds_.Observe(absl::ToDoubleSeconds(end - start));
  if (!status.ok()) ++commit_failures_;
  return status;
}

void CoreLoop::Settle(std::vector<Unit> units) {
  const absl::Status status = Commit();
  if (status.ok()) {
    Release(std::move(units));
  } else {
    TakeApart(std::move(units), status);
  }
}

void CoreLoop::TakeApart(std::vector<Unit> units, absl::Status status) {
  const absl::Duration stop = clock_->Monotonic() + kTakeApartPatience;
  const auto drop = [this] {
    absl::MutexLock lock(&state_mutex_);
    core_->Drop();
  };
  drop();
  if (units.size() == 1) return Fail(&units[0], status);
  for (Unit& unit : units) {
    Decide(&unit);
    if (core_->writes().empty() || clock_->Monotonic() < stop) {
      const absl::Status alone = Commit();
      if (alone.ok()) {
        std::vector<Unit> one;
        one.push_back(std::move(unit));
        Release(std::move(one));
        continue;
      }
      status = alone;
    }
    drop();
    Fail(&unit, status);
  }
}

void CoreLoop::Fail(Unit* unit, const absl::Status& status) {
  if (unit->request) {
    unit->answered.Finish(status);
  } else {
    upkeep_after_ = clock_->Monotonic() + kRest;
  }
}

void CoreLoop::Release(std::vector<Unit> units) {
  std::map<std::string, int64_t> news;  // job id -> lowest step with new points, 0 without
  {
    absl::MutexLock lock(&state_mutex_);
    for (const core::Write& write : core_->writes()) {
      if (const auto* logs = std::get_if<core::PutLogs>(&write)) {
        news.emplace(logs->cursor.job_id, 0);
      }
      const auto* metrics = std::get_if<core::PutMetrics>(&write);
      if (metrics == nullptr) continue;
      latest_.Update(metrics->job_id, metrics->points);
      int64_t& first = news.emplace(metrics->job_id, 0).first->second;
      for (const v1::MetricPoint& point : metrics->points) {
        first = first == 0 ? point.step() : std::min(first, point.step());
      }
    }
    for (const core::JobPointer& changed : core_->Commit()) news.emplace(changed->job.id(), 0);
  }
  for (Unit& unit : units) {
    if (unit.request) unit.answered.Finish(std::move(unit.effects.answer));
    Send(std::move(unit.effects.signals));
  }
  PublishNews(news);
}

void CoreLoop::Send(std::vector<core::Signal> signals) {
  for (core::Signal& signal : signals) sessions_.Send(signal.worker, std::move(signal.message));
}

void CoreLoop::PublishNews(const std::map<std::string, int64_t>& news) {
  for (const auto& [job_id, first_step] : news) {
    if (!job_listeners_.HasListeners(job_id)) continue;
    const core::JobPointer record = core_->jobs().Find(job_id);
    if (record != nullptr) job_listeners_.Publish({Described(*core_, record), first_step});
  }
}

void CoreLoop::TickIfDue() {
  const absl::Duration now = clock_->Monotonic();
  if (now < next_tick_) return;
  next_tick_ = now + options_.tick;
  job_listeners_.Sweep();
  inspections_.Expire(now);
  PublishReasons();
  ForgetOldMetrics();
}

// Why a job waits changes without a write: its watchers hear of it within a tick.
void CoreLoop::PublishReasons() {
  std::map<std::string, std::string> reasons;
  for (const std::string& job_id : job_listeners_.JobIds()) {
    const core::JobPointer record = core_->jobs().Find(job_id);
    if (record == nullptr || record->job.state() != v1::JOB_STATE_PENDING) continue;
    const std::shared_ptr<const v1::Job> job = Described(*core_, record);
    const auto former = reasons_.find(job_id);
    const bool changed = former == reasons_.end() || former->second != job->pending_reason();
    reasons[job_id] = job->pending_reason();
    if (changed) job_listeners_.Publish({job, 0});
  }
  reasons_ = std::move(reasons);
}

void CoreLoop::ForgetOldMetrics() {
  std::vector<std::string> gone;
  for (const auto& [job_id, latest] : latest_.jobs()) {
    const core::JobPointer record = core_->jobs().Find(job_id);
    const bool waits = record != nullptr && record->job.state() == v1::JOB_STATE_PENDING;
    if (record == nullptr ||
        (!waits && !telemetry::IsExported(record->job, clock_->Now(), options_.series_retention))) {
      gone.push_back(job_id);
    }
  }
  absl::MutexLock lock(&state_mutex_);
  for (const std::string& job_id : gone) latest_.Forget(job_id);
}

}  // namespace octavo::loop
