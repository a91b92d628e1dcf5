// A coordinator in the test's own process, reached through in-process channels.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/log.grpc.pb.h"
#include "octavo/v1/metric.grpc.pb.h"
#include "octavo/v1/node.grpc.pb.h"
#include "octavo/v1/worker.grpc.pb.h"
#include "server/rpc/coordinator.h"
#include "tests/support/server_jobs.h"
#include "tests/support/temporary_folder.h"

namespace octavo::testing_support {

// A call's context with a deadline, so that no test hangs.
class CallContext : public grpc::ClientContext {
 public:
  CallContext() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20)); }
};

// The clients that a user and a worker have.
struct Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : jobs(v1::JobService::NewStub(channel)),
        metrics(v1::MetricService::NewStub(channel)),
        logs(v1::LogService::NewStub(channel)),
        nodes(v1::NodeService::NewStub(channel)),
        workers(v1::WorkerService::NewStub(channel)) {}

  v1::Job Submit(const v1::JobSpec& spec, const std::string& request_id) {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    *request.mutable_spec() = spec;
    CallContext context;
    v1::Job job;
    status = jobs->SubmitJob(&context, request, &job);
    return job;
  }
  v1::Job Submit(const v1::JobSpec& spec = SomeSpec()) {
    return Submit(spec, absl::StrCat("request-", ++submitted));
  }
  v1::Job Get(const std::string& job_id) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    CallContext context;
    v1::Job job;
    status = jobs->GetJob(&context, request, &job);
    return job;
  }
  v1::ListJobsResponse List(int page_size = 0, const std::string& page_token = "",
                            std::vector<v1::JobState> states = {}) {
    v1::ListJobsRequest request;
    request.set_page_size(page_size);
    request.set_page_token(page_token);
    for (const v1::JobState state : states) request.add_states(state);
    CallContext context;
    v1::ListJobsResponse response;
    status = jobs->ListJobs(&context, request, &response);
    return response;
  }

  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::MetricService::Stub> metrics;
  std::unique_ptr<v1::LogService::Stub> logs;
  std::unique_ptr<v1::NodeService::Stub> nodes;
  std::unique_ptr<v1::WorkerService::Stub> workers;
  grpc::Status status;  // of the last call
  int submitted = 0;
};

class TestCoordinator {
 public:
  explicit TestCoordinator(rpc::CoordinatorOptions options = {}) : options_(std::move(options)) {
    options_.listen = "";
    options_.data_dir = folder_.path() + "/data";
    options_.loop.tick = absl::Milliseconds(5);  // so that placing takes no time
    Restart();
  }

  // Another process over the same folder.
  void Restart() {
    stubs = nullptr;
    coordinator_ = nullptr;
    auto started = rpc::Coordinator::Start(options_, &clock_);
    CHECK(started.ok());
    coordinator_ = *std::move(started);
    stubs = std::make_unique<Stubs>(coordinator_->InProcessChannel());
  }

  Stubs* operator->() { return stubs.get(); }
  rpc::Coordinator& coordinator() { return *coordinator_; }
  rpc::CoordinatorOptions& options() { return options_; }
  const std::string& folder() const { return folder_.path(); }

  std::unique_ptr<Stubs> stubs;

 private:
  TemporaryFolder folder_;
  SystemClock clock_;
  rpc::CoordinatorOptions options_;
  std::unique_ptr<rpc::Coordinator> coordinator_;
};

}  // namespace octavo::testing_support
