#include "tests/unit/agent/fake_coordinator.h"

#include <chrono>
#include <set>

namespace octavo::agent {
namespace {

constexpr int kHeartbeatMs = 50;
constexpr int kLeaseMs = 200;  // short, since a worker is not to care

}  // namespace

FakeCoordinator::FakeCoordinator(std::string socket) : socket_(std::move(socket)) { Start(); }

void FakeCoordinator::Start() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

void FakeCoordinator::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeCoordinator::Assign(const v1::Assignment& assignment) {
  absl::MutexLock lock(&mutex_);
  assignments_[assignment.lease().job_id()] = assignment;
}
void FakeCoordinator::Cancel(const v1::LeaseIdentity& lease_identity) {
  absl::MutexLock lock(&mutex_);
  cancelled_[lease_identity.job_id()] = lease_identity;
}
void FakeCoordinator::KeepOnRegistration(bool keep) {
  absl::MutexLock lock(&mutex_);
  keep_ = keep;
}
void FakeCoordinator::Inspect(const v1::Inspect& inspect) {
  absl::MutexLock lock(&mutex_);
  to_inspect_.push_back(inspect);
}
void FakeCoordinator::RejectRegistrations() {
  absl::MutexLock lock(&mutex_);
  reject_ = true;
}

int FakeCoordinator::registrations() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(registrations_.size());
}
v1::RegisterWorkerRequest FakeCoordinator::last_registration() const {
  absl::MutexLock lock(&mutex_);
  return registrations_.back();
}
int FakeCoordinator::heartbeats() const {
  absl::MutexLock lock(&mutex_);
  return heartbeats_;
}
std::vector<std::string> FakeCoordinator::running() const {
  absl::MutexLock lock(&mutex_);
  return running_;
}
std::vector<v1::ReportAttemptFinishedRequest> FakeCoordinator::ends() const {
  absl::MutexLock lock(&mutex_);
  return ends_;
}
std::vector<v1::ReportInspectionRequest> FakeCoordinator::inspections() const {
  absl::MutexLock lock(&mutex_);
  return inspections_;
}
std::vector<std::string> FakeCoordinator::lines() const {
  absl::MutexLock lock(&mutex_);
  return lines_;
}

grpc::Status FakeCoordinator::RegisterWorker(grpc::ServerContext*,
                                             const v1::RegisterWorkerRequest* request,
                                             v1::RegisterWorkerResponse* response) {
  absl::MutexLock lock(&mutex_);
  if (reject_) return {grpc::StatusCode::FAILED_PRECONDITION, "incarnation x was replaced by y"};
  registrations_.push_back(*request);
  response->set_heartbeat_ms(kHeartbeatMs);
  response->set_lease_ms(kLeaseMs);
  if (keep_) *response->mutable_keep() = request->running();
  return grpc::Status::OK;
}

v1::SessionResponse FakeCoordinator::Answer(const v1::SessionRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::SessionResponse response;
  response.set_acknowledged_sequence(request.sequence());
  ++heartbeats_;
  running_.clear();
  std::set<std::string> listed;
  for (const v1::LeaseIdentity& running : request.running()) {
    running_.push_back(running.job_id());
    listed.insert(running.job_id());
    *response.add_renewed() = running;
    assignments_.erase(running.job_id());
  }
  for (const auto& [job_id, lease] : cancelled_) *response.add_stop() = lease;
  for (const auto& [job_id, assignment] : assignments_) {
    *response.add_assignments() = assignment;
  }
  for (const v1::Inspect& inspect : to_inspect_) *response.add_inspections() = inspect;
  to_inspect_.clear();
  return response;
}

grpc::Status FakeCoordinator::Session(
    grpc::ServerContext*,
    grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream) {
  v1::SessionRequest request;
  while (stream->Read(&request)) stream->Write(Answer(request));
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ReportAttemptStarted(grpc::ServerContext*,
                                                   const v1::ReportAttemptStartedRequest*,
                                                   v1::ReportAttemptStartedResponse*) {
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ReportAttemptFinished(grpc::ServerContext*,
                                                    const v1::ReportAttemptFinishedRequest* request,
                                                    v1::ReportAttemptFinishedResponse*) {
  absl::MutexLock lock(&mutex_);
  ends_.push_back(*request);
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::CommitCheckpoint(grpc::ServerContext*,
                                               const v1::CommitCheckpointRequest*,
                                               v1::CommitCheckpointResponse*) {
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::PushMetrics(grpc::ServerContext*, const v1::PushMetricsRequest*,
                                          v1::PushMetricsResponse*) {
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::PushLogs(grpc::ServerContext*, const v1::PushLogsRequest* request,
                                       v1::PushLogsResponse*) {
  absl::MutexLock lock(&mutex_);
  for (const v1::LogLine& line : request->lines()) lines_.push_back(line.text());
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ReportInspection(grpc::ServerContext*,
                                               const v1::ReportInspectionRequest* request,
                                               v1::ReportInspectionResponse*) {
  absl::MutexLock lock(&mutex_);
  inspections_.push_back(*request);
  return grpc::Status::OK;
}

}  // namespace octavo::agent
