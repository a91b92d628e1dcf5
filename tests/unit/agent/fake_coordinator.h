// A WorkerService on a Unix socket that does what the test says and remembers what it hears.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "octavo/v1/worker.grpc.pb.h"

namespace octavo::agent {

class FakeCoordinator final : public v1::WorkerService::Service {
 public:
  explicit FakeCoordinator(std::string socket);
  ~FakeCoordinator() override { Stop(); }

  std::string address() const { return "unix:" + socket_; }
  void Start();
  void Stop();  // as if it were killed; Start begins anew with what the test has set

  // What it does from now on.
  void Assign(const v1::Assignment& assignment);  // repeated until the agent lists it
  void Cancel(const v1::LeaseIdentity& lease);    // repeated for ever
  void KeepOnRegistration(bool keep);
  void Inspect(const v1::Inspect& inspect);  // once
  void RejectRegistrations();

  // What it has heard.
  int registrations() const;
  v1::RegisterWorkerRequest last_registration() const;
  int heartbeats() const;
  std::vector<std::string> running() const;  // job ids of the last heartbeat
  std::vector<v1::ReportAttemptFinishedRequest> ends() const;
  std::vector<v1::ReportInspectionRequest> inspections() const;
  std::vector<std::string> lines() const;

 private:
  grpc::Status RegisterWorker(grpc::ServerContext*, const v1::RegisterWorkerRequest*,
                              v1::RegisterWorkerResponse*) override;
  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>*) override;
  grpc::Status ReportAttemptStarted(grpc::ServerContext*, const v1::ReportAttemptStartedRequest*,
                                    v1::ReportAttemptStartedResponse*) override;
  grpc::Status ReportAttemptFinished(grpc::ServerContext*, const v1::ReportAttemptFinishedRequest*,
                                     v1::ReportAttemptFinishedResponse*) override;
  grpc::Status CommitCheckpoint(grpc::ServerContext*, const v1::CommitCheckpointRequest*,
                                v1::CommitCheckpointResponse*) override;
  grpc::Status PushMetrics(grpc::ServerContext*, const v1::PushMetricsRequest*,
                           v1::PushMetricsResponse*) override;
  grpc::Status PushLogs(grpc::ServerContext*, const v1::PushLogsRequest*,
                        v1::PushLogsResponse*) override;
  grpc::Status ReportInspection(grpc::ServerContext*, const v1::ReportInspectionRequest*,
                                v1::ReportInspectionResponse*) override;
  v1::SessionResponse Answer(const v1::SessionRequest& request);

  const std::string socket_;
  std::unique_ptr<grpc::Server> server_;

  mutable absl::Mutex mutex_;
  std::map<std::string, v1::Assignment> assignments_ ABSL_GUARDED_BY(mutex_);  // by job
  std::map<std::string, v1::LeaseIdentity> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Inspect> to_inspect_ ABSL_GUARDED_BY(mutex_);
  bool keep_ ABSL_GUARDED_BY(mutex_) = true;
  bool reject_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::RegisterWorkerRequest> registrations_ ABSL_GUARDED_BY(mutex_);
  int heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ReportAttemptFinishedRequest> ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ReportInspectionRequest> inspections_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::agent
