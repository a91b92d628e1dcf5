// A trainer without an engine: the job's name says how it behaves.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "octavo/v1/trainer.grpc.pb.h"
#include "tests/unit/agent/support.h"

namespace octavo::agent {
namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void WaitForSignal() {
  while (true) pause();
}

// A line every 20 ms.
[[noreturn]] void Chat() {
  const timespec between = {.tv_sec = 0, .tv_nsec = 20'000'000};
  while (true) {
    Say("still here");
    nanosleep(&between, nullptr);
  }
}

int Finish(v1::TrainerService::Stub* stub, const v1::FinishRequest& request) {
  grpc::ClientContext context;
  v1::FinishResponse response;
  return stub->Finish(&context, request, &response).ok() ? 0 : 75;
}

int Succeed(v1::TrainerService::Stub* stub) {
  v1::ReportMetricsRequest metrics;
  v1::MetricPoint* point = metrics.add_points();
  point->set_name("train/loss");
  point->set_step(1);
  point->set_value(2.5);
  v1::ReportMetricsResponse metrics_response;
  grpc::ClientContext metrics_context;
  stub->ReportMetrics(&metrics_context, metrics, &metrics_response);

  v1::CommitTrainerCheckpointRequest commit;
  commit.mutable_checkpoint()->set_step(1);
  v1::CommitTrainerCheckpointResponse commit_response;
  grpc::ClientContext commit_context;
  const grpc::Status committed =
      stub->CommitTrainerCheckpoint(&commit_context, commit, &commit_response);
  if (!committed.ok()) Say("refused: " + committed.error_message());

  v1::FinishRequest finish;
  finish.mutable_report()->set_steps(1);
  return Finish(stub, finish);
}

int Fail(v1::TrainerService::Stub* stub) {
  v1::FinishRequest finish;
  finish.mutable_failure()->set_cause(v1::FAILURE_CAUSE_INVALID_INPUT);
  finish.mutable_failure()->set_message("the corpus is empty");
  return Finish(stub, finish);
}

}  // namespace

int RunFakeTrainer(const std::string& agent) {
  const auto stub =
      v1::TrainerService::NewStub(grpc::CreateChannel(agent, grpc::InsecureChannelCredentials()));
  v1::BeginRequest begin;
  begin.set_process_id(getpid());
  v1::Assignment assignment;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  if (!stub->Begin(&context, begin, &assignment).ok()) return 75;
  const std::string& behaviour = assignment.spec().name();
  if (behaviour == "undying") {  // but by SIGKILL from the test
    prctl(PR_SET_PDEATHSIG, 0);
    for (const int ignored : {SIGTERM, SIGUSR1}) signal(ignored, SIG_IGN);
  }
  Say("process " + std::to_string(getpid()));
  if (behaviour == "succeed") return Succeed(stub.get());
  if (behaviour == "fail") return Fail(stub.get());
  if (behaviour == "exit-3") return 3;
  if (behaviour == "killed") {
    Say("last words");
    raise(SIGKILL);
  }
  if (behaviour == "stubborn") signal(SIGTERM, SIG_IGN);
  if (behaviour == "chatty") Chat();
  Say("waits");
  WaitForSignal();
}

}  // namespace octavo::agent
