#include "tests/unit/client/fake_coordinator.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/client.h"
#include "proto/support/job_state.h"

namespace octavo::client {
namespace {

// Streams look so often whether their client has gone.
constexpr absl::Duration kPoll = absl::Milliseconds(20);

grpc::Status NotFound(const std::string& id) {
  return {grpc::StatusCode::NOT_FOUND, absl::StrCat("there is no job \"", id, "\"")};
}

grpc::Status Gone() { return {grpc::StatusCode::UNAVAILABLE, "the coordinator stops"}; }

}  // namespace

FakeCoordinator::FakeCoordinator(int port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(static_cast<v1::JobService::Service*>(this));
  builder.RegisterService(static_cast<v1::LogService::Service*>(this));
  builder.RegisterService(static_cast<v1::MetricService::Service*>(this));
  builder.RegisterService(static_cast<v1::NodeService::Service*>(this));
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr);
}

FakeCoordinator::~FakeCoordinator() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
}

std::string FakeCoordinator::address() const { return absl::StrCat("127.0.0.1:", port_); }

std::shared_ptr<grpc::Channel> FakeCoordinator::Channel() { return server_->InProcessChannel({}); }

void FakeCoordinator::Put(const v1::Job& job) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(jobs_, [&](const v1::Job& old) { return old.id() == job.id(); });
  jobs_.push_back(job);
}

void FakeCoordinator::AddPoint(const std::string& name, int64_t step, double value) {
  v1::MetricPoint point;
  point.set_name(name);
  point.set_step(step);
  point.set_value(value);
  point.set_time_unix_ms(1000 * step);
  absl::MutexLock lock(&mutex_);
  points_.push_back(point);
}

void FakeCoordinator::AddLine(const std::string& text) {
  absl::MutexLock lock(&mutex_);
  lines_.push_back(text);
}

void FakeCoordinator::AddWorker(const v1::Worker& worker) {
  absl::MutexLock lock(&mutex_);
  workers_.push_back(worker);
}

void FakeCoordinator::SetValidation(const v1::ValidateJobResponse& response) {
  absl::MutexLock lock(&mutex_);
  validation_ = response;
}

void FakeCoordinator::FailSubmits(std::vector<grpc::Status> statuses) {
  absl::MutexLock lock(&mutex_);
  submit_failures_.assign(statuses.begin(), statuses.end());
}

void FakeCoordinator::AnswerSubmitsWithViolations(const v1::Violations& violations) {
  absl::MutexLock lock(&mutex_);
  violations_ = violations.SerializeAsString();
}

std::vector<v1::SubmitJobRequest> FakeCoordinator::submits() const {
  absl::MutexLock lock(&mutex_);
  return submits_;
}

const v1::Job* FakeCoordinator::Find(const std::string& id) const {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const v1::Job& job) { return job.id() == id; });
  return found == jobs_.end() ? nullptr : &*found;
}

grpc::Status FakeCoordinator::SubmitJob(grpc::ServerContext* context,
                                        const v1::SubmitJobRequest* request, v1::Job* job) {
  absl::MutexLock lock(&mutex_);
  submits_.push_back(*request);
  if (!submit_failures_.empty()) {
    const grpc::Status failure = submit_failures_.front();
    submit_failures_.pop_front();
    return failure;
  }
  if (!violations_.empty()) {
    context->AddTrailingMetadata(kViolationsKey, violations_);
    return {grpc::StatusCode::INVALID_ARGUMENT, "the spec has violations"};
  }
  job->set_id("job-submit01");
  *job->mutable_spec() = request->spec();
  job->set_state(v1::JOB_STATE_PENDING);
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ValidateJob(grpc::ServerContext*, const v1::ValidateJobRequest*,
                                          v1::ValidateJobResponse* response) {
  absl::MutexLock lock(&mutex_);
  *response = validation_;
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                     v1::Job* job) {
  absl::MutexLock lock(&mutex_);
  const v1::Job* const found = Find(request->job_id());
  if (found == nullptr) return NotFound(request->job_id());
  *job = *found;
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                       v1::ListJobsResponse* response) {
  absl::MutexLock lock(&mutex_);
  // The token is the number of jobs that were sent; two a page shows that pages are followed.
  size_t next = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  const size_t end = std::min({next + 2, next + request->page_size(), jobs_.size()});
  for (; next < end; ++next) *response->add_jobs() = jobs_[jobs_.size() - 1 - next];
  if (next < jobs_.size()) response->set_next_page_token(absl::StrCat(next));
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::WatchJob(grpc::ServerContext* context,
                                       const v1::WatchJobRequest* request,
                                       grpc::ServerWriter<v1::Job>* writer) {
  int64_t sent = -1;
  absl::MutexLock lock(&mutex_);
  while (!context->IsCancelled() && !closing_) {
    const v1::Job* const job = Find(request->job_id());
    if (job == nullptr) return NotFound(request->job_id());
    if (job->version() > sent) {
      sent = job->version();
      writer->Write(*job);
    }
    if (IsTerminal(job->state())) return grpc::Status::OK;
    mutex_.AwaitWithTimeout(absl::Condition(&closing_), kPoll);
  }
  return Gone();
}

grpc::Status FakeCoordinator::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                        v1::Job* job) {
  absl::MutexLock lock(&mutex_);
  const v1::Job* const found = Find(request->job_id());
  if (found == nullptr) return NotFound(request->job_id());
  if (found->state() == v1::JOB_STATE_SUCCEEDED) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "the job has succeeded"};
  }
  *job = *found;
  job->set_state(v1::JOB_STATE_CANCELLING);
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::TailLogs(grpc::ServerContext*, const v1::TailLogsRequest* request,
                                       grpc::ServerWriter<v1::LogLines>* writer) {
  absl::MutexLock lock(&mutex_);
  if (Find(request->job_id()) == nullptr) return NotFound(request->job_id());
  const auto size = static_cast<int64_t>(lines_.size());
  int64_t offset = request->offset();
  if (offset < 0) offset = std::max<int64_t>(size + offset, 0);
  for (; offset < size; ++offset) {
    v1::LogLines message;
    v1::LogLine& line = *message.add_lines();
    line.set_offset(offset);
    line.set_text(lines_[offset]);
    writer->Write(message);
  }
  return grpc::Status::OK;
}

bool FakeCoordinator::Matches(const v1::MetricPoint& point,
                              const v1::QueryMetricsRequest& request) const {
  const bool named = request.names().empty() ||
                     std::find(request.names().begin(), request.names().end(), point.name()) !=
                         request.names().end();
  return named && point.step() > request.after_step();
}

grpc::Status FakeCoordinator::QueryMetrics(grpc::ServerContext*,
                                           const v1::QueryMetricsRequest* request,
                                           v1::QueryMetricsResponse* response) {
  absl::MutexLock lock(&mutex_);
  if (Find(request->job_id()) == nullptr) return NotFound(request->job_id());
  for (const v1::MetricPoint& point : points_) {
    if (Matches(point, *request)) *response->add_points() = point;
  }
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::StreamMetrics(grpc::ServerContext* context,
                                            const v1::StreamMetricsRequest* request,
                                            grpc::ServerWriter<v1::MetricPoints>* writer) {
  size_t sent = 0;
  absl::MutexLock lock(&mutex_);
  while (!context->IsCancelled() && !closing_) {
    const v1::Job* const job = Find(request->job_id());
    if (job == nullptr) return NotFound(request->job_id());
    v1::MetricPoints message;
    for (; sent < points_.size(); ++sent) {
      if (points_[sent].step() > request->after_step()) *message.add_points() = points_[sent];
    }
    if (!message.points().empty()) writer->Write(message);
    if (IsTerminal(job->state())) return grpc::Status::OK;
    mutex_.AwaitWithTimeout(absl::Condition(&closing_), kPoll);
  }
  return Gone();
}

grpc::Status FakeCoordinator::ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                                          v1::ListWorkersResponse* response) {
  absl::MutexLock lock(&mutex_);
  for (const v1::Worker& worker : workers_) *response->add_workers() = worker;
  return grpc::Status::OK;
}

}  // namespace octavo::client
