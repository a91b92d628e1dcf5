#include "client/job_feed.h"

#include <algorithm>
#include <utility>

namespace octavo::client {
namespace {

// A drawing program takes them faster than they come; the limit bounds memory if it does not.
constexpr size_t kQueueLimit = 1000;

}  // namespace

JobFeed::JobFeed(Client* client, const Options& options) : client_(client) {
  points_ = std::thread([this, options] { ReadPoints(options); });
  changes_ = std::thread([this, options] { ReadChanges(options); });
}

JobFeed::~JobFeed() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  stop_changes_.Stop();
  stop_points_.Stop();
  changes_.join();
}

std::optional<JobFeed::Event> JobFeed::Next(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !events_.empty(); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), patience)) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void JobFeed::Push(Event event) {
  absl::MutexLock lock(&mutex_);
  const auto room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || events_.size() < kQueueLimit;
  };
  mutex_.Await(absl::Condition(&room));
  if (!closed_) events_.push_back(std::move(event));
}

void JobFeed::ReadChanges(const Options& options) {
  v1::WatchJobRequest request;
  request.set_job_id(options.job_id);
  int64_t version = -1;
  const Reconnect reconnect = {.patience = options.patience,
                               .notice = [this](const std::string& text) { Push(Notice{text}); }};
  const absl::Status status = FollowStream<v1::Job>(
      client_, reconnect, &stop_changes_,
      [&](grpc::ClientContext* call) { return client_->jobs().WatchJob(call, request); },
      [&](const v1::Job& job) {
        if (std::exchange(version, job.version()) != job.version()) Push(job);
      });
  // After a success the points end by themselves; otherwise nobody waits for more of them.
  if (!status.ok()) stop_points_.Stop();
  points_.join();
  Push(End{status});
}

void JobFeed::ReadPoints(const Options& options) {
  v1::StreamMetricsRequest request;
  request.set_job_id(options.job_id);
  const Reconnect reconnect = {.patience = options.patience};
  // Without points a job can still be watched; what is wrong shows up in its changes too.
  FollowStream<v1::MetricPoints>(
      client_, reconnect, &stop_points_,
      [&](grpc::ClientContext* call) { return client_->metrics().StreamMetrics(call, request); },
      [&](const v1::MetricPoints& points) {
        for (const v1::MetricPoint& point : points.points()) {
          request.set_after_step(std::max<int64_t>(point.step() - 1, 0));
        }
        Push(points);
      })
      .IgnoreError();
}

}  // namespace octavo::client
