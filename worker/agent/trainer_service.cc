#include "worker/agent/trainer_service.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::agent {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace

TrainerService::TrainerService(v1::Assignment assignment, Outbox* outbox)
    : assignment_(std::move(assignment)), outbox_(outbox) {}

grpc::Status TrainerService::Begin(grpc::ServerContext*, const v1::BeginRequest*,
                                   v1::Assignment* response) {
  *response = assignment_;
  return grpc::Status::OK;
}

grpc::Status TrainerService::ReportMetrics(grpc::ServerContext*,
                                           const v1::ReportMetricsRequest* request,
                                           v1::ReportMetricsResponse*) {
  return ToGrpc(outbox_->AddMetrics({request->points().begin(), request->points().end()}));
}

grpc::Status TrainerService::BeginTrainerCheckpoint(
    grpc::ServerContext*, const v1::BeginTrainerCheckpointRequest* request,
    v1::BeginTrainerCheckpointResponse*) {
  return ToGrpc(outbox_->AddCheckpointBegun(request->step(), request->folder()));
}

grpc::Status TrainerService::CommitTrainerCheckpoint(
    grpc::ServerContext*, const v1::CommitTrainerCheckpointRequest* request,
    v1::CommitTrainerCheckpointResponse* response) {
  const auto answer = outbox_->CommitCheckpoint(request->checkpoint());
  if (answer.ok()) *response->mutable_obsolete_folders() = answer->obsolete_folders();
  return ToGrpc(answer.status());
}

grpc::Status TrainerService::Finish(grpc::ServerContext*, const v1::FinishRequest* request,
                                    v1::FinishResponse*) {
  absl::MutexLock lock(&mutex_);
  if (!finished_.has_value()) finished_ = *request;
  return grpc::Status::OK;
}

std::optional<v1::FinishRequest> TrainerService::finished() const {
  absl::MutexLock lock(&mutex_);
  return finished_;
}

absl::StatusOr<std::unique_ptr<SocketServer>> SocketServer::Start(const std::string& path,
                                                                  grpc::Service* service) {
  grpc::ServerBuilder builder;
  // One trainer: one thread waits for its calls, and another takes over while a call blocks.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::InternalError(absl::StrCat("listening on the Unix socket ", path, " failed"));
  }
  return std::unique_ptr<SocketServer>(new SocketServer(path, std::move(server)));
}

SocketServer::SocketServer(std::string path, std::unique_ptr<grpc::Server> server)
    : path_(std::move(path)), server_(std::move(server)) {}

SocketServer::~SocketServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  unlink(path_.c_str());
}

}  // namespace octavo::agent
