#include "tests/unit/trainer/fake_agent.h"

#include <chrono>

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

grpc::Status FakeAgent::ReportMetrics(grpc::ServerContext*, const v1::ReportMetricsRequest* request,
                                      v1::ReportMetricsResponse*) {
  calls.push_back("metrics " + std::to_string(request->points(0).step()));
  points.insert(points.end(), request->points().begin(), request->points().end());
  return grpc::Status::OK;
}

grpc::Status FakeAgent::BeginTrainerCheckpoint(grpc::ServerContext*,
                                               const v1::BeginTrainerCheckpointRequest* request,
                                               v1::BeginTrainerCheckpointResponse*) {
  calls.push_back("begin " + std::to_string(request->step()));
  if (request->step() == refuse_begin_of_step) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "not this one"};
  }
  return grpc::Status::OK;
}

grpc::Status FakeAgent::CommitTrainerCheckpoint(grpc::ServerContext*,
                                                const v1::CommitTrainerCheckpointRequest* request,
                                                v1::CommitTrainerCheckpointResponse* response) {
  calls.push_back("commit " + std::to_string(request->checkpoint().step()));
  committed.push_back(request->checkpoint());
  for (const std::string& folder : obsolete_folders) response->add_obsolete_folders(folder);
  return on_commit;
}

grpc::Status FakeAgent::Finish(grpc::ServerContext*, const v1::FinishRequest* request,
                               v1::FinishResponse*) {
  calls.push_back("finish");
  finished = *request;
  return grpc::Status::OK;
}

}  // namespace octavo::trainer
