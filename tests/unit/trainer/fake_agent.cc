#include "tests/unit/trainer/fake_agent.h"

#include <chrono>

#include "absl/strings/match.h"

namespace octavo::trainer {

FakeAgent::FakeAgent(const std::string& socket) : address_("unix:" + socket) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeAgent::~FakeAgent() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status FakeAgent::Begin(grpc::ServerContext*, const v1::BeginRequest*,
                              v1::Assignment* response) {
  *response = assignment;
  return grpc::Status::OK;
}

void FakeAgent::Note(const std::string& call) {
  absl::MutexLock lock(&mutex_);
  calls_.push_back(call);
}

std::vector<std::string> FakeAgent::calls() const {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

std::vector<std::string> FakeAgent::calls_but_metrics() const {
  std::vector<std::string> rest;
  for (const std::string& call : calls()) {
    if (!absl::StartsWith(call, "metrics")) rest.push_back(call);
  }
  return rest;
}

void FakeAgent::ForgetCalls() {
  absl::MutexLock lock(&mutex_);
  calls_.clear();
}

std::vector<v1::Checkpoint> FakeAgent::committed() const {
  absl::MutexLock lock(&mutex_);
  return committed_;
}

std::optional<v1::FinishRequest> FakeAgent::finished() const {
  absl::MutexLock lock(&mutex_);
  return finished_;
}

grpc::Status FakeAgent::ReportMetrics(grpc::ServerContext* context,
                                      const v1::ReportMetricsRequest* request,
                                      v1::ReportMetricsResponse*) {
  const int64_t step = request->points(0).step();
  if (hold_metrics && !hold_metrics(*context, step)) return grpc::Status::CANCELLED;
  Note("metrics " + std::to_string(step));
  return grpc::Status::OK;
}

grpc::Status FakeAgent::BeginTrainerCheckpoint(grpc::ServerContext*,
                                               const v1::BeginTrainerCheckpointRequest* request,
                                               v1::BeginTrainerCheckpointResponse*) {
  Note("begin " + std::to_string(request->step()));
  return grpc::Status::OK;
}

grpc::Status FakeAgent::CommitTrainerCheckpoint(grpc::ServerContext* context,
                                                const v1::CommitTrainerCheckpointRequest* request,
                                                v1::CommitTrainerCheckpointResponse* response) {
  const int64_t step = request->checkpoint().step();
  Note("commit " + std::to_string(step));
  if (hold_commit && !hold_commit(*context, step)) return grpc::Status::CANCELLED;
  if (step == refuse_commit_of_step) return {grpc::StatusCode::INVALID_ARGUMENT, "not this one"};
  absl::MutexLock lock(&mutex_);
  committed_.push_back(request->checkpoint());
  for (const std::string& folder : obsolete_folders) response->add_obsolete_folders(folder);
  return on_commit;
}

grpc::Status FakeAgent::Finish(grpc::ServerContext*, const v1::FinishRequest* request,
                               v1::FinishResponse*) {
  Note("finish");
  absl::MutexLock lock(&mutex_);
  finished_ = *request;
  return grpc::Status::OK;
}

}  // namespace octavo::trainer
