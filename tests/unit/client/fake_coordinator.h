// A coordinator that answers what a test told it to, for RunClient.
#pragma once

#include <grpcpp/server.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/log.grpc.pb.h"
#include "octavo/v1/metric.grpc.pb.h"
#include "octavo/v1/node.grpc.pb.h"

namespace octavo::client {

class FakeCoordinator final : public v1::JobService::Service,
                              public v1::LogService::Service,
                              public v1::MetricService::Service,
                              public v1::NodeService::Service {
 public:
  // `port` 0: a free one of the loopback interface.
  explicit FakeCoordinator(int port = 0);
  ~FakeCoordinator() override;

  int port() const { return port_; }
  std::string address() const;
  std::shared_ptr<grpc::Channel> Channel();

  // What the calls answer from.
  void Put(const v1::Job& job);  // newest last; wakes watchers
  void AddPoint(const std::string& name, int64_t step, double value);
  void AddLine(const std::string& text);
  void AddWorker(const v1::Worker& worker);
  void SetValidation(const v1::ValidateJobResponse& response);
  // The next submissions answer these, one each, after they were recorded.
  void FailSubmits(std::vector<grpc::Status> statuses);
  void AnswerSubmitsWithViolations(const v1::Violations& violations);

  std::vector<v1::SubmitJobRequest> submits() const;

  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::Job* job) override;
  grpc::Status ValidateJob(grpc::ServerContext* context, const v1::ValidateJobRequest* request,
                           v1::ValidateJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* job) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* job) override;
  grpc::Status TailLogs(grpc::ServerContext* context, const v1::TailLogsRequest* request,
                        grpc::ServerWriter<v1::LogLines>* writer) override;
  grpc::Status QueryMetrics(grpc::ServerContext* context, const v1::QueryMetricsRequest* request,
                            v1::QueryMetricsResponse* response) override;
  grpc::Status StreamMetrics(grpc::ServerContext* context, const v1::StreamMetricsRequest* request,
                             grpc::ServerWriter<v1::MetricPoints>* writer) override;
  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override;

 private:
  const v1::Job* Find(const std::string& id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool Matches(const v1::MetricPoint& point, const v1::QueryMetricsRequest& request) const;

  mutable absl::Mutex mutex_;
  std::vector<v1::Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::MetricPoint> points_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Worker> workers_ ABSL_GUARDED_BY(mutex_);
  v1::ValidateJobResponse validation_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SubmitJobRequest> submits_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::Status> submit_failures_ ABSL_GUARDED_BY(mutex_);
  std::string violations_ ABSL_GUARDED_BY(mutex_);  // serialised
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace octavo::client
