// One coordinator as the commands see it: calls with deadlines, and errors that say what to do.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/log.grpc.pb.h"
#include "octavo/v1/metric.grpc.pb.h"
#include "octavo/v1/node.grpc.pb.h"

namespace octavo::client {

class Interruption;

class Client {
 public:
  struct Options {
    std::string server;                          // for messages
    absl::Duration timeout = absl::Seconds(10);  // of one call
  };
  Client(std::shared_ptr<grpc::Channel> channel, Options options);

  const std::string& server() const { return options_.server; }

  // `job`: an id, or "latest" for the job that was submitted last.
  absl::StatusOr<std::string> ResolveJob(const std::string& job);
  absl::StatusOr<v1::Job> GetJob(const std::string& job);
  absl::StatusOr<v1::Job> CancelJob(const std::string& job);
  // All pages, up to `limit` jobs.
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& filter, int limit);
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers();
  // All pages of all points; `names` empty: every metric.
  absl::StatusOr<v1::QueryMetricsResponse> QueryMetrics(const std::string& job_id,
                                                        const std::vector<std::string>& names);
  absl::StatusOr<v1::ValidateJobResponse> ValidateJob(const v1::JobSpec& spec);
  // Repeated under the same request_id while the coordinator is away, a limited number of times:
  // the answer may have been lost after the job was stored.
  absl::StatusOr<v1::Job> SubmitJob(const v1::SubmitJobRequest& request,
                                    Interruption* interruption);

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::LogService::Stub& logs() { return *logs_; }
  v1::MetricService::Stub& metrics() { return *metrics_; }

  // A call's outcome with the address, and the remedy where nobody answers. Violations of the
  // trailing metadata become a payload under kViolationsKey.
  absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) const;

 private:
  template <typename Stub, typename Method, typename Request, typename Response>
  absl::Status Call(Stub& stub, Method method, const Request& request, Response* response,
                    absl::Duration timeout);

  const Options options_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::LogService::Stub> logs_;
  const std::unique_ptr<v1::MetricService::Stub> metrics_;
  const std::unique_ptr<v1::NodeService::Stub> nodes_;
};

// Key of the trailing metadata and of the status payload that hold v1.Violations.
inline constexpr char kViolationsKey[] = "octavo-violations-bin";
// Empty when the status has none.
v1::Violations ViolationsOf(const absl::Status& status);

}  // namespace octavo::client
