#include <algorithm>

#include "absl/strings/str_cat.h"
#include "octavo/v1/metric.grpc.pb.h"
#include "server/rpc/job_stream.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

constexpr int64_t kDefaultPoints = 10000;
constexpr int64_t kMaxPoints = 100000;
// A point takes at most 48 bytes on the wire, and gRPC clients take messages of 4 MiB.
constexpr int64_t kPointsPerMessage = 50000;
constexpr int64_t kPointsPerStreamMessage = 1000;

absl::Status CheckAfterStep(int64_t after_step) {
  if (after_step >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("after_step: ", after_step, " is negative; steps count from 1"));
}

template <typename Request>
absl::Status CheckQuery(const Request& request) {
  if (absl::Status status = CheckMetricNames(request.names()); !status.ok()) return status;
  return CheckAfterStep(request.after_step());
}

class MetricStream final : public JobStream<v1::MetricPoints> {
 public:
  MetricStream(Shell& shell, const v1::StreamMetricsRequest& request)
      : JobStream(shell, "MetricService/StreamMetrics", request.job_id(), CheckQuery(request)),
        begin_(request.after_step()),
        query_{.job_id = request.job_id(),
               .names = {request.names().begin(), request.names().end()},
               .after_step = request.after_step(),
               .max_points = kPointsPerStreamMessage} {}

 private:
  void Pull() override {
    if (done_) return End(absl::OkStatus());
    // Read before the points are: what is stored once the job has ended is all there will be.
    const bool ended = IsTerminal(job()->state());
    // New points of a step that was sent before: a later attempt repeats it, or the step came in
    // two batches.
    if (const int64_t first = TakeFirstNewStep(); first <= query_.after_step) {
      query_.after_step = std::max(begin_, first - 1);
    }
    shell().pool->Post(
        [self = shared_from_this(), this, ended](absl::StatusOr<storage::StoreReader*> reader) {
          if (!reader.ok()) return End(reader.status());
          auto page = (*reader)->ReadMetrics(query_);
          if (!page.ok()) return End(page.status());
          done_ = ended && page->next_after_step == 0;
          if (page->points.empty()) return done_ ? End(absl::OkStatus()) : Rest();
          query_.after_step = page->points.back().step();
          v1::MetricPoints message;
          for (v1::MetricPoint& point : page->points) *message.add_points() = std::move(point);
          Deliver(std::move(message));
        });
  }

  const int64_t begin_;
  // Owned by whoever pulls.
  storage::StoreReader::MetricQuery query_;
  bool done_ = false;
};

void AnswerQuery(BlockingPool* pool, storage::StoreReader::MetricQuery query,
                 Reply<v1::QueryMetricsResponse> reply) {
  pool->Post([query = std::move(query),
              reply = std::move(reply)](absl::StatusOr<storage::StoreReader*> reader) mutable {
    if (!reader.ok()) return reply.Finish(reader.status());
    auto page = (*reader)->ReadMetrics(query);
    if (!page.ok()) return reply.Finish(page.status());
    v1::QueryMetricsResponse response;
    for (v1::MetricPoint& point : page->points) *response.add_points() = std::move(point);
    response.set_next_after_step(page->next_after_step);
    reply.Finish(std::move(response));
  });
}

class MetricService final : public v1::MetricService::CallbackService {
 public:
  explicit MetricService(Shell* shell) : shell_(*shell) {}

  grpc::ServerUnaryReactor* QueryMetrics(grpc::CallbackServerContext* context,
                                         const v1::QueryMetricsRequest* request,
                                         v1::QueryMetricsResponse* response) override {
    auto [reactor, reply, deadline] =
        BeginUnary(shell_, "MetricService/QueryMetrics", context, response);
    absl::Status check = CheckJobId(request->job_id());
    if (check.ok()) check = CheckQuery(*request);
    const absl::StatusOr<int64_t> points =
        PageSize("max_points", request->max_points(), kDefaultPoints, kMaxPoints);
    if (check.ok()) check = points.status();
    if (!check.ok()) {
      reply.Finish(check);
      return reactor;
    }
    storage::StoreReader::MetricQuery query = {
        .job_id = request->job_id(),
        .names = {request->names().begin(), request->names().end()},
        .after_step = request->after_step(),
        .max_points = std::min(*points, kPointsPerMessage)};
    bool known = false;
    shell_.loop->Read(
        [&](const core::Core& core) { known = core.jobs().Find(query.job_id) != nullptr; });
    if (!known) {
      reply.Finish(NoSuchJob(query.job_id));
      return reactor;
    }
    AnswerQuery(shell_.pool, std::move(query), std::move(reply));
    return reactor;
  }

  grpc::ServerWriteReactor<v1::MetricPoints>* StreamMetrics(
      grpc::CallbackServerContext*, const v1::StreamMetricsRequest* request) override {
    auto stream = std::make_shared<MetricStream>(shell_, *request);
    return stream->Launch(stream);
  }

 private:
  Shell& shell_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMetricService(Shell* shell) {
  return std::make_unique<MetricService>(shell);
}

}  // namespace octavo::rpc
