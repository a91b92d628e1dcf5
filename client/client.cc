#include "client/client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/connection.h"
#include "client/stream.h"

namespace octavo::client {
namespace {

constexpr int kPageSize = 1000;
constexpr int kMaxPages = 10000;
constexpr int kMaxPoints = 100000;
// The coordinator waits for a worker to open the inputs, at most 60 s by default.
constexpr absl::Duration kValidateTimeout = absl::Seconds(75);
constexpr int kSubmitTries = 6;
constexpr absl::Duration kFirstPause = absl::Milliseconds(250);
constexpr absl::Duration kLongestPause = absl::Seconds(4);

absl::Status TooManyPages(absl::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": the coordinator sent more than ", kMaxPages, " pages"));
}

}  // namespace

Client::Client(std::shared_ptr<grpc::Channel> channel, Options options)
    : options_(std::move(options)),
      jobs_(v1::JobService::NewStub(channel)),
      logs_(v1::LogService::NewStub(channel)),
      metrics_(v1::MetricService::NewStub(channel)),
      nodes_(v1::NodeService::NewStub(channel)) {}

absl::Status Client::ToStatus(const grpc::Status& status,
                              const grpc::ClientContext& context) const {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return Unreachable(options_.server, status.error_message());
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the coordinator at ", options_.server, " gave no answer within ",
        absl::FormatDuration(options_.timeout), "; try again, or give it longer by --timeout"));
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  // A proxy or another service: the message alone would not say who speaks.
  if (absl::IsUnimplemented(result) || absl::IsUnknown(result) || absl::IsInternal(result)) {
    result = absl::Status(result.code(), absl::StrCat("what answers at ", options_.server,
                                                      " does not work as an octavod of this "
                                                      "version: ",
                                                      status.error_message()));
  }
  const auto& metadata = context.GetServerTrailingMetadata();
  if (const auto found = metadata.find(kViolationsKey); found != metadata.end()) {
    result.SetPayload(kViolationsKey,
                      absl::Cord(absl::string_view(found->second.data(), found->second.size())));
  }
  return result;
}

v1::Violations ViolationsOf(const absl::Status& status) {
  v1::Violations violations;
  if (const auto payload = status.GetPayload(kViolationsKey)) {
    violations.ParsePartialFromString(std::string(*payload));
  }
  return violations;
}

template <typename Stub, typename Method, typename Request, typename Response>
absl::Status Client::Call(Stub& stub, Method method, const Request& request, Response* response,
                          absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::Status status = (stub.*method)(&context, request, response);
  return ToStatus(status, context);
}

absl::StatusOr<std::string> Client::ResolveJob(const std::string& job) {
  if (job != "latest") return job;
  v1::ListJobsRequest request;
  request.set_page_size(1);
  v1::ListJobsResponse response;
  RETURN_IF_ERROR(
      Call(*jobs_, &v1::JobService::Stub::ListJobs, request, &response, options_.timeout));
  if (response.jobs().empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no latest job: the coordinator at ", server(), " has none"));
  }
  return response.jobs(0).id();
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_job_id(), ResolveJob(job));
  v1::Job response;
  RETURN_IF_ERROR(
      Call(*jobs_, &v1::JobService::Stub::GetJob, request, &response, options_.timeout));
  return response;
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& job) {
  v1::CancelJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_job_id(), ResolveJob(job));
  v1::Job response;
  RETURN_IF_ERROR(
      Call(*jobs_, &v1::JobService::Stub::CancelJob, request, &response, options_.timeout));
  return response;
}

absl::StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& filter,
                                                      int limit) {
  v1::ListJobsRequest request = filter;
  v1::ListJobsResponse all;
  for (int page = 0; page < kMaxPages; ++page) {
    request.set_page_size(std::min(limit - all.jobs_size(), kPageSize));
    v1::ListJobsResponse response;
    RETURN_IF_ERROR(
        Call(*jobs_, &v1::JobService::Stub::ListJobs, request, &response, options_.timeout));
    for (v1::Job& job : *response.mutable_jobs()) *all.add_jobs() = std::move(job);
    all.set_next_page_token(response.next_page_token());
    if (response.next_page_token().empty() || all.jobs_size() >= limit) return all;
    request.set_page_token(response.next_page_token());
  }
  return TooManyPages("listing jobs");
}

absl::StatusOr<v1::ListWorkersResponse> Client::ListWorkers() {
  v1::ListWorkersRequest request;
  request.set_page_size(kPageSize);
  v1::ListWorkersResponse all;
  for (int page = 0; page < kMaxPages; ++page) {
    v1::ListWorkersResponse response;
    RETURN_IF_ERROR(
        Call(*nodes_, &v1::NodeService::Stub::ListWorkers, request, &response, options_.timeout));
    for (v1::Worker& worker : *response.mutable_workers()) *all.add_workers() = std::move(worker);
    if (response.next_page_token().empty()) return all;
    request.set_page_token(response.next_page_token());
  }
  return TooManyPages("listing workers");
}

absl::StatusOr<v1::QueryMetricsResponse> Client::QueryMetrics(
    const std::string& job_id, const std::vector<std::string>& names) {
  v1::QueryMetricsRequest request;
  request.set_job_id(job_id);
  request.set_max_points(kMaxPoints);
  for (const std::string& name : names) request.add_names(name);
  v1::QueryMetricsResponse all;
  for (int page = 0; page < kMaxPages; ++page) {
    v1::QueryMetricsResponse response;
    RETURN_IF_ERROR(Call(*metrics_, &v1::MetricService::Stub::QueryMetrics, request, &response,
                         options_.timeout));
    for (v1::MetricPoint& point : *response.mutable_points()) *all.add_points() = std::move(point);
    if (response.next_after_step() == 0) return all;
    request.set_after_step(response.next_after_step());
  }
  return TooManyPages("reading metrics");
}

absl::StatusOr<v1::ValidateJobResponse> Client::ValidateJob(const v1::JobSpec& spec) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  v1::ValidateJobResponse response;
  RETURN_IF_ERROR(Call(*jobs_, &v1::JobService::Stub::ValidateJob, request, &response,
                       std::max(options_.timeout, kValidateTimeout)));
  return response;
}

absl::StatusOr<v1::Job> Client::SubmitJob(const v1::SubmitJobRequest& request,
                                          Interruption* interruption) {
  absl::Duration pause = kFirstPause;
  for (int attempt = 1;; ++attempt) {
    v1::Job response;
    const absl::Status status =
        Call(*jobs_, &v1::JobService::Stub::SubmitJob, request, &response, options_.timeout);
    if (status.ok()) return response;
    const bool lost = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    if (!lost) return status;
    if (attempt == kSubmitTries || !interruption->Pause(pause)) {
      return Annotate(
          status, absl::StrCat("the job may or may not be stored, see octavo jobs; tried ", attempt,
                               " times"));
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace octavo::client
