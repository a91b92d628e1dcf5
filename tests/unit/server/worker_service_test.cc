#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <set>

#include "tests/support/server_coordinator.h"
#include "tests/support/server_worker.h"

namespace octavo::rpc {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;
using testing::Not;
using testing_support::CallContext;
using testing_support::Point;
using testing_support::ScriptedWorker;
using testing_support::SomeSpec;
using testing_support::TestCoordinator;

// Runs the oldest pending job to its end with the given losses of steps 1, 2, ...
std::string RunJob(ScriptedWorker& worker, const std::vector<double>& losses) {
  const v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  EXPECT_TRUE(worker.Start(lease).ok());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_TRUE(
        worker.Push(lease, {Point("train/loss", static_cast<int64_t>(i) + 1, losses[i])}).ok());
  }
  EXPECT_TRUE(worker.Succeed(lease).ok());
  return lease.job_id();
}

v1::QueryMetricsResponse Query(TestCoordinator& octavod, const std::string& job_id,
                               const std::vector<std::string>& names) {
  v1::QueryMetricsRequest request;
  request.set_job_id(job_id);
  for (const auto& name : names) request.add_names(name);
  CallContext context;
  v1::QueryMetricsResponse response;
  octavod->status = octavod->metrics->QueryMetrics(&context, request, &response);
  return response;
}

TEST(Session, EndsForAWorkerThatIsNotRegistered) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  worker.Beat();
  EXPECT_EQ(worker.SessionStatus().error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST(Session, BelongsToOneWorker) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  EXPECT_EQ(worker.Beat().acknowledged_sequence(), 1);
  worker.identity.set_worker_id("worker-b");
  worker.Beat();
  EXPECT_EQ(worker.SessionStatus().error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST(Session, OfAnOutdatedIncarnationDoesNotDisturbItsSuccessors) {
  TestCoordinator octavod;
  ScriptedWorker old(*octavod.stubs, "worker-a", "0000000000000001");
  ASSERT_TRUE(old.Register().ok());
  EXPECT_EQ(old.Beat().acknowledged_sequence(), 1);
  old.EndSession();
  ScriptedWorker current(*octavod.stubs, "worker-a", "0000000000000002");
  int refused = 0;  // until the coordinator has noticed that the session is gone
  while (!current.Register().ok()) ASSERT_LT(++refused, 100000);
  EXPECT_EQ(current.Beat().acknowledged_sequence(), 1);
  old.Beat();
  EXPECT_EQ(old.SessionStatus().error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(current.Beat().acknowledged_sequence(), 2);
}

TEST(Session, CarriesAnAssignmentWithItsBaseline) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  octavod->Submit(SomeSpec("baseline"));
  const std::string baseline = RunJob(worker, {2.0});
  v1::JobSpec spec = SomeSpec("compared");
  spec.mutable_stages(0)->mutable_divergence()->set_baseline_job(baseline);
  const v1::Job job = octavod->Submit(spec);
  ASSERT_TRUE(octavod->status.ok()) << octavod->status.error_message();
  const v1::Assignment assignment = worker.AwaitAssignment();
  EXPECT_EQ(assignment.lease().job_id(), job.id());
  EXPECT_EQ(assignment.spec().name(), "compared");
  EXPECT_EQ(assignment.baseline().id(), baseline);
  EXPECT_EQ(assignment.baseline().report().steps(), 10);
}

TEST(PushMetrics, AddsTheGapToTheBaselineInTheSameTransaction) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  octavod->Submit();
  v1::JobSpec spec = SomeSpec();
  spec.mutable_stages(0)->mutable_divergence()->set_baseline_job(RunJob(worker, {2.0, 1.0}));
  octavod->Submit(spec);
  const std::string job = RunJob(worker, {2.5, 1.5, 1.25});
  const auto response = Query(octavod, job, {"divergence/baseline_ratio"});
  ASSERT_EQ(response.points_size(), 2) << "the baseline has no third step";
  EXPECT_EQ(response.points(0).value(), 0.25);
  EXPECT_EQ(response.points(1).value(), 0.5);
  EXPECT_EQ(Query(octavod, job, {"divergence/baseline_loss"}).points(1).value(), 1.0);
}

TEST(PushMetrics, IsFencedUnderAnOldEpoch) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  const std::string job_id = octavod->Submit().id();
  v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  lease.set_epoch(lease.epoch() + 1);
  const grpc::Status status = worker.Push(lease, {Point("train/loss", 1, 1.0)});
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), testing::StartsWith("LEASE_FENCED"));
  EXPECT_EQ(Query(octavod, job_id, {}).points_size(), 0);
}

TEST(QueryMetrics, NamesAnUnknownMetricAndAnUnknownJob) {
  TestCoordinator octavod;
  Query(octavod, octavod->Submit().id(), {"train/lose"});
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(octavod->status.error_message(), HasSubstr("train/lose"));
  Query(octavod, "job-zzzzzzzz", {});
  EXPECT_EQ(octavod->status.error_code(), StatusCode::NOT_FOUND);
}

TEST(StreamMetrics, SendsWhatIsStoredThenWhatArrivesUntilTheJobEnds) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  v1::StreamMetricsRequest request;
  request.set_job_id(octavod->Submit().id());
  const v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  ASSERT_TRUE(worker.Start(lease).ok());
  ASSERT_TRUE(worker.Push(lease, {Point("train/loss", 1, 1.0)}).ok());
  CallContext context;
  const auto stream = octavod->metrics->StreamMetrics(&context, request);
  // A set: points that are read between their commit and the news of it are sent once more.
  std::set<int64_t> steps;
  v1::MetricPoints message;
  ASSERT_TRUE(stream->Read(&message));
  for (const auto& point : message.points()) steps.insert(point.step());
  ASSERT_TRUE(worker.Push(lease, {Point("train/loss", 2, 1.0), Point("train/loss", 3, 1.0)}).ok());
  ASSERT_TRUE(worker.Succeed(lease).ok());
  while (stream->Read(&message)) {
    for (const auto& point : message.points()) steps.insert(point.step());
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3));
}

TEST(StreamMetrics, SendsAStepAgainThatALaterPushRepeats) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  v1::StreamMetricsRequest request;
  request.set_job_id(octavod->Submit().id());
  const v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  ASSERT_TRUE(worker.Push(lease, {Point("train/loss", 1, 1.0), Point("train/loss", 2, 1.0)}).ok());
  CallContext context;
  const auto stream = octavod->metrics->StreamMetrics(&context, request);
  v1::MetricPoints message;
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_EQ(message.points_size(), 2);
  ASSERT_TRUE(worker.Push(lease, {Point("train/loss", 2, 0.5)}).ok());
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_EQ(message.points_size(), 1);
  EXPECT_EQ(message.points(0).step(), 2);
  EXPECT_EQ(message.points(0).value(), 0.5);
  context.TryCancel();
  stream->Finish();
}

class TailLogsTest : public testing::Test {
 protected:
  TailLogsTest() {
    EXPECT_TRUE(worker_.Register().ok());
    job_id_ = octavod_->Submit().id();
    lease_ = worker_.AwaitAssignment().lease();
    EXPECT_TRUE(worker_.Start(lease_).ok());
  }

  std::unique_ptr<grpc::ClientReader<v1::LogLines>> Tail(int64_t offset, bool follow) {
    v1::TailLogsRequest request;
    request.set_job_id(job_id_);
    request.set_offset(offset);
    request.set_follow(follow);
    return octavod_->logs->TailLogs(&context_, request);
  }
  // Appends what the next message holds to `texts`.
  bool Read(grpc::ClientReader<v1::LogLines>& stream) {
    v1::LogLines message;
    if (!stream.Read(&message)) return false;
    for (const auto& line : message.lines()) {
      texts_.push_back(line.text());
      EXPECT_EQ(line.offset(), first_offset_ + static_cast<int64_t>(texts_.size()) - 1);
    }
    return true;
  }

  TestCoordinator octavod_;
  ScriptedWorker worker_{*octavod_.stubs};
  std::string job_id_;
  v1::LeaseIdentity lease_;
  CallContext context_;
  std::vector<std::string> texts_;
  int64_t first_offset_ = 0;
};

TEST_F(TailLogsTest, FollowsUntilTheJobHasEndedAndEveryLineWasSent) {
  ASSERT_TRUE(worker_.Log(lease_, 0, {"a", "b"}).ok());
  const auto stream = Tail(0, true);
  ASSERT_TRUE(Read(*stream));
  ASSERT_TRUE(worker_.Log(lease_, 1, {"c"}).ok());
  ASSERT_TRUE(worker_.Log(lease_, 1, {"c"}).ok()) << "repeated: stored once";
  ASSERT_TRUE(worker_.Succeed(lease_).ok());
  while (Read(*stream)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(texts_, testing::ElementsAre("a", "b", "c"));
}

TEST_F(TailLogsTest, StopsAtTheEndWithoutFollow) {
  ASSERT_TRUE(worker_.Log(lease_, 0, {"a", "b", "c"}).ok());
  const auto stream = Tail(-2, false);
  first_offset_ = 1;
  while (Read(*stream)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(texts_, testing::ElementsAre("b", "c"));
}

TEST_F(TailLogsTest, SendsAFloodInPages) {
  const std::vector<std::string> lines(25, std::string(8000, 'x'));
  for (int64_t batch = 0; batch < 20; ++batch) ASSERT_TRUE(worker_.Log(lease_, batch, lines).ok());
  const auto stream = Tail(0, false);
  int messages = 0;
  while (Read(*stream)) ++messages;
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(texts_.size(), 500u);
  EXPECT_GE(messages, 15) << "each of 256 KiB at most";
}

// Booked twice, it would train two jobs at once.
TEST(RegisterWorker, RefusesADeviceThatIsNamedTwice) {
  TestCoordinator octavod;
  v1::RegisterWorkerRequest request;
  request.mutable_worker()->set_worker_id("worker-a");
  request.mutable_worker()->set_incarnation("00000000000000aa");
  for (const int32_t index : {0, 1, 0}) {
    v1::Device& device = *request.add_devices();
    device.set_kind("cpu");
    device.set_index(index);
    device.set_memory_bytes(index + request.devices_size());
  }
  const auto call = [&] {
    CallContext context;
    v1::RegisterWorkerResponse response;
    return octavod->workers->RegisterWorker(&context, request, &response);
  };
  const grpc::Status refused = call();
  EXPECT_EQ(refused.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("cpu 0 is named twice"));
  request.mutable_devices(2)->set_kind("gpu");
  EXPECT_TRUE(call().ok());
}

TEST(ListWorkers, PagesById) {
  TestCoordinator octavod;
  for (const char* id : {"worker-c", "worker-a", "worker-b"})
    ASSERT_TRUE(ScriptedWorker(*octavod.stubs, id).Register().ok());
  std::vector<std::string> ids;
  v1::ListWorkersRequest request;
  request.set_page_size(2);
  do {
    CallContext context;
    v1::ListWorkersResponse response;
    ASSERT_TRUE(octavod->nodes->ListWorkers(&context, request, &response).ok());
    for (const auto& worker : response.workers()) ids.push_back(worker.id());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(ids, testing::ElementsAre("worker-a", "worker-b", "worker-c"));
}

TEST(Metrics, ShowAJobWhileItRunsAndNotAfter) {
  CoordinatorOptions options;
  options.loop.series_retention = absl::Nanoseconds(1);
  TestCoordinator octavod(options);
  const auto scrape = [&] {
    return prometheus::TextSerializer().Serialize(octavod.coordinator().collectable()->Collect());
  };
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  const std::string job_id = octavod->Submit().id();
  const v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  ASSERT_TRUE(worker.Push(lease, {Point("train/loss", 3, 1.5)}).ok());
  EXPECT_THAT(scrape(), HasSubstr("octavo_train_loss{job=\"" + job_id + "\"} 1.5"));
  EXPECT_THAT(scrape(), HasSubstr("octavo_workers{state=\"connected\"} 1"));
  EXPECT_THAT(
      scrape(),
      HasSubstr(
          "octavo_rpc_server_handled_total{method=\"WorkerService/PushMetrics\",code=\"ok\"} 1"));
  ASSERT_TRUE(worker.Succeed(lease).ok());
  EXPECT_THAT(scrape(), Not(HasSubstr(job_id)));
  EXPECT_THAT(scrape(), HasSubstr("octavo_jobs{state=\"succeeded\"} 1"));
}

// Every call with an empty request answers with an error of the caller and leaves the coordinator
// alive.
TEST(EveryCall, RefusesAnEmptyRequest) {
  TestCoordinator octavod;
  std::vector<grpc::Status> answers;
  const auto call = [&](auto& stub, auto method, const auto& request, auto response) {
    CallContext context;
    answers.push_back((stub.get()->*method)(&context, request, &response));
  };
  using Jobs = v1::JobService::Stub;
  using Workers = v1::WorkerService::Stub;
  call(octavod->jobs, &Jobs::SubmitJob, v1::SubmitJobRequest(), v1::Job());
  call(octavod->jobs, &Jobs::GetJob, v1::GetJobRequest(), v1::Job());
  call(octavod->jobs, &Jobs::CancelJob, v1::CancelJobRequest(), v1::Job());
  call(octavod->metrics, &v1::MetricService::Stub::QueryMetrics, v1::QueryMetricsRequest(),
       v1::QueryMetricsResponse());
  call(octavod->workers, &Workers::RegisterWorker, v1::RegisterWorkerRequest(),
       v1::RegisterWorkerResponse());
  call(octavod->workers, &Workers::ReportAttemptStarted, v1::ReportAttemptStartedRequest(),
       v1::ReportAttemptStartedResponse());
  call(octavod->workers, &Workers::ReportAttemptFinished, v1::ReportAttemptFinishedRequest(),
       v1::ReportAttemptFinishedResponse());
  call(octavod->workers, &Workers::BeginCheckpoint, v1::BeginCheckpointRequest(),
       v1::BeginCheckpointResponse());
  call(octavod->workers, &Workers::CommitCheckpoint, v1::CommitCheckpointRequest(),
       v1::CommitCheckpointResponse());
  call(octavod->workers, &Workers::PushMetrics, v1::PushMetricsRequest(),
       v1::PushMetricsResponse());
  call(octavod->workers, &Workers::PushLogs, v1::PushLogsRequest(), v1::PushLogsResponse());
  call(octavod->workers, &Workers::ReportInspection, v1::ReportInspectionRequest(),
       v1::ReportInspectionResponse());
  CallContext watch, tail, stream, session;
  answers.push_back(octavod->jobs->WatchJob(&watch, v1::WatchJobRequest())->Finish());
  answers.push_back(octavod->logs->TailLogs(&tail, v1::TailLogsRequest())->Finish());
  answers.push_back(octavod->metrics->StreamMetrics(&stream, v1::StreamMetricsRequest())->Finish());
  const auto beats = octavod->workers->Session(&session);
  beats->Write(v1::SessionRequest());
  answers.push_back(beats->Finish());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].error_code(), StatusCode::INVALID_ARGUMENT)
        << "call " << i << ": " << answers[i].error_message();
  }
  octavod->Submit();
  EXPECT_TRUE(octavod->status.ok());
}

}  // namespace
}  // namespace octavo::rpc
