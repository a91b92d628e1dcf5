#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/server_coordinator.h"
#include "tests/support/server_worker.h"

namespace octavo::rpc {
namespace {

using grpc::StatusCode;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::CallContext;
using testing_support::ScriptedWorker;
using testing_support::SomeSpec;
using testing_support::Stubs;
using testing_support::TestCoordinator;

v1::ValidateJobResponse Validate(TestCoordinator& octavod, const v1::JobSpec& spec) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  CallContext context;
  v1::ValidateJobResponse response;
  octavod->status = octavod->jobs->ValidateJob(&context, request, &response);
  return response;
}

TEST(SubmitJob, AnswersWithAPendingJobThatSaysEverythingAboutItself) {
  TestCoordinator octavod;
  const v1::Job job = octavod->Submit();
  ASSERT_TRUE(octavod->status.ok()) << octavod->status.error_message();
  EXPECT_TRUE(std::regex_match(job.id(), std::regex("job-[a-z0-9]{8}"))) << job.id();
  EXPECT_EQ(job.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job.spec().resources().device_kind(), "cpu") << "defaults are filled in";
  EXPECT_EQ(octavod->Get(job.id()).SerializeAsString(), job.SerializeAsString());
}

TEST(SubmitJob, ListsEveryViolationInMessageAndMetadata) {
  TestCoordinator octavod;
  v1::SubmitJobRequest request;
  request.set_request_id("r");
  *request.mutable_spec() = SomeSpec();
  request.mutable_spec()->mutable_stages(0)->set_steps(-5);
  request.mutable_spec()->set_output_folder("relative");
  CallContext context;
  v1::Job job;
  const grpc::Status status = octavod->jobs->SubmitJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("stages[0].steps"), HasSubstr("output_folder")));
  const auto trailing = context.GetServerTrailingMetadata();
  const auto found = trailing.find("octavo-violations-bin");
  ASSERT_NE(found, trailing.end());
  v1::Violations violations;
  ASSERT_TRUE(
      violations.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())));
  EXPECT_EQ(violations.violations_size(), 2);
}

TEST(SubmitJob, RefusesThousandsOfViolationsWithinTheLimitOfHeaders) {
  TestCoordinator octavod;
  v1::JobSpec spec = SomeSpec();
  for (int i = 0; i < 3000; ++i)
    spec.mutable_stages(0)->mutable_data()->add_files("relative/\xF0\x9F\x98\x80");
  octavod->Submit(spec);
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT)
      << octavod->status.error_message();
}

TEST(SubmitJob, RefusesASpecBeyondItsSizeLimit) {
  TestCoordinator octavod;
  v1::JobSpec spec = SomeSpec();
  for (int i = 0; i < 5000; ++i)
    spec.mutable_stages(0)->mutable_data()->add_files("/data/" + std::string(60, 'x'));
  octavod->Submit(spec);
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(octavod->status.error_message(), HasSubstr("262144"));
}

TEST(SubmitJob, IsIdempotentByRequestIdAcrossARestart) {
  TestCoordinator octavod;
  const v1::Job first = octavod->Submit(SomeSpec(), "same");
  octavod.Restart();
  EXPECT_EQ(octavod->Submit(SomeSpec(), "same").id(), first.id());
  octavod->Submit(SomeSpec("another-name"), "same");
  EXPECT_EQ(octavod->status.error_code(), StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(octavod->List().jobs_size(), 1);
}

TEST(SubmitJob, MakesOneJobOfConcurrentRepetitions) {
  TestCoordinator octavod;
  std::vector<std::string> ids(64);
  std::vector<std::thread> clients;
  for (std::string& id : ids) {
    clients.emplace_back([&octavod, &id] {
      id = Stubs(octavod.coordinator().InProcessChannel()).Submit(SomeSpec(), "same").id();
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1u);
  EXPECT_EQ(octavod->List().jobs_size(), 1);
}

TEST(SubmitJob, WantsABaselineThatSucceeded) {
  TestCoordinator octavod;
  v1::JobSpec spec = SomeSpec();
  spec.mutable_stages(0)->mutable_divergence()->set_baseline_job("job-zzzzzzzz");
  octavod->Submit(spec);
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(octavod->status.error_message(), HasSubstr("stages[0].divergence.baseline_job"));
  spec.mutable_stages(0)->mutable_divergence()->set_baseline_job(octavod->Submit().id());
  octavod->Submit(spec);
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT) << "it is pending";
}

TEST(SubmitJob, PlansTheMemoryOfAModelThatItCanSee) {
  TestCoordinator octavod;
  std::filesystem::create_directories(octavod.folder() + "/model");
  std::ofstream(octavod.folder() + "/model/config.json") << R"({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": true, "eos_token_id": 0,
    "initializer_range": 0.02})";
  v1::JobSpec spec = SomeSpec();
  EXPECT_EQ(octavod->Submit(spec).memory_bytes(), 0) << "its folder is not visible here";
  spec.mutable_stages(0)->mutable_model()->set_folder(octavod.folder() + "/model");
  EXPECT_GT(octavod->Submit(spec).memory_bytes(), 1 << 20);
  spec.mutable_resources()->set_memory_bytes(12345678);
  EXPECT_EQ(octavod->Submit(spec).memory_bytes(), 12345678) << "the spec says so";
}

TEST(ListJobs, PagesThroughAThousandJobsNewestFirst) {
  TestCoordinator octavod;
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&octavod, client] {
      Stubs stubs(octavod.coordinator().InProcessChannel());
      for (int i = 0; i < 126; ++i)
        stubs.Submit(SomeSpec(), absl::StrCat("request-", client, "-", i));
    });
  }
  for (std::thread& client : clients) client.join();
  std::set<std::string> ids;
  std::string token;
  int pages = 0;
  do {
    const v1::ListJobsResponse page = octavod->List(100, token);
    ASSERT_TRUE(octavod->status.ok());
    for (const v1::Job& job : page.jobs()) ids.insert(job.id());
    token = page.next_page_token();
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(ids.size(), 1008u);
  EXPECT_EQ(pages, 11);
  const std::string last = octavod->Submit(SomeSpec("last")).id();
  EXPECT_EQ(octavod->List(1).jobs(0).id(), last);
}

TEST(ListJobs, BindsItsTokenToTheFilter) {
  TestCoordinator octavod;
  octavod->Submit();
  octavod->Submit();
  const std::string token = octavod->List(1).next_page_token();
  ASSERT_FALSE(token.empty());
  EXPECT_EQ(octavod->List(1, token).jobs_size(), 1);
  for (const std::string& wrong : {std::string("x"), token + "A", std::string("AAAA")}) {
    octavod->List(1, wrong);
    EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT) << wrong;
  }
  octavod->List(1, token, {v1::JOB_STATE_PENDING});
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST(ListJobs, SelectsByState) {
  TestCoordinator octavod;
  octavod->Submit();
  EXPECT_EQ(octavod->List(0, "", {v1::JOB_STATE_PENDING}).jobs_size(), 1);
  EXPECT_EQ(octavod->List(0, "", {v1::JOB_STATE_FAILED, v1::JOB_STATE_RUNNING}).jobs_size(), 0);
  octavod->List(0, "", {static_cast<v1::JobState>(77)});
  EXPECT_EQ(octavod->status.error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST(CancelJob, EndsAPendingJob) {
  TestCoordinator octavod;
  v1::CancelJobRequest request;
  request.set_job_id(octavod->Submit().id());
  for (int time = 0; time < 2; ++time) {
    CallContext context;
    v1::Job job;
    ASSERT_TRUE(octavod->jobs->CancelJob(&context, request, &job).ok());
    EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  }
}

TEST(WatchJob, SendsTheJobAtOnceThenItsChangesAndEndsWithIt) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  v1::WatchJobRequest request;
  request.set_job_id(octavod->Submit().id());
  CallContext context;
  const auto watch = octavod->jobs->WatchJob(&context, request);
  v1::Job job;
  ASSERT_TRUE(watch->Read(&job));
  int64_t version = job.version();
  const v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  ASSERT_TRUE(worker.Start(lease).ok());
  ASSERT_TRUE(worker.Succeed(lease).ok());
  while (watch->Read(&job)) {
    EXPECT_GT(job.version(), version) << "in order, each once";
    version = job.version();
  }
  EXPECT_TRUE(watch->Finish().ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.report().steps(), 10);
}

TEST(WatchJob, IsRefusedBeyondTheStreamLimit) {
  CoordinatorOptions options;
  options.limits.stream_limit = 1;
  TestCoordinator octavod(options);
  v1::WatchJobRequest request;
  request.set_job_id(octavod->Submit().id());
  CallContext first_context;
  const auto first = octavod->jobs->WatchJob(&first_context, request);
  v1::Job job;
  ASSERT_TRUE(first->Read(&job));
  CallContext second_context;
  EXPECT_EQ(octavod->jobs->WatchJob(&second_context, request)->Finish().error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  first_context.TryCancel();
  EXPECT_EQ(first->Finish().error_code(), StatusCode::CANCELLED);
}

TEST(ValidateJob, SaysThatNothingWasInspectedWithoutAWorker) {
  TestCoordinator octavod;
  const v1::ValidateJobResponse response = Validate(octavod, SomeSpec());
  ASSERT_TRUE(octavod->status.ok()) << octavod->status.error_message();
  EXPECT_EQ(response.violations_size(), 0);
  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_THAT(response.warnings(0), HasSubstr("the inputs were not inspected: no worker"));
  EXPECT_EQ(response.spec().stages(0).recipe().name(), "fp8");
}

TEST(ValidateJob, NeverFailsBecauseOfTheSpec) {
  TestCoordinator octavod;
  EXPECT_GE(Validate(octavod, v1::JobSpec()).violations_size(), 3);
  EXPECT_TRUE(octavod->status.ok());
}

TEST(ValidateJob, AsksAConnectedWorkerAndAddsWhatItFound) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register(int64_t{1} << 30).ok());
  worker.Beat();
  std::thread inspector([&] {
    const v1::SessionResponse message = worker.Read();
    ASSERT_EQ(message.inspections_size(), 1);
    EXPECT_EQ(message.inspections(0).spec().name(), "some-job");
    v1::ReportInspectionRequest report;
    *report.mutable_worker() = worker.identity;
    report.set_inspection_id(message.inspections(0).inspection_id());
    report.add_violations()->set_field("stages[0].data.files[0]");
    report.add_warnings("half of the rows are empty");
    report.mutable_plan()->set_total_bytes(int64_t{3} << 30);
    CallContext context;
    v1::ReportInspectionResponse response;
    EXPECT_TRUE(octavod->workers->ReportInspection(&context, report, &response).ok());
  });
  const v1::ValidateJobResponse response = Validate(octavod, SomeSpec());
  inspector.join();
  ASSERT_TRUE(octavod->status.ok());
  ASSERT_EQ(response.violations_size(), 2);
  EXPECT_EQ(response.violations(0).field(), "stages[0].data.files[0]");
  EXPECT_EQ(response.violations(1).field(), "resources.memory_bytes");
  EXPECT_THAT(response.violations(1).message(),
              AllOf(HasSubstr("3.0 GiB"), HasSubstr("1.0 GiB"), HasSubstr("worker-a")));
  EXPECT_EQ(response.warnings(0), "half of the rows are empty");
  EXPECT_EQ(response.plan().total_bytes(), int64_t{3} << 30);
}

TEST(ValidateJob, HasTheInputsInspectedInSpiteOfWrongFieldsAndSaysNothingTwice) {
  TestCoordinator octavod;
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  worker.Beat();
  v1::JobSpec spec = SomeSpec();
  spec.set_priority(5000);
  const v1::ValidateJobResponse alone = [&] {
    TestCoordinator without_worker;
    return Validate(without_worker, spec);
  }();
  ASSERT_EQ(alone.violations_size(), 1);
  std::thread inspector([&] {
    const v1::SessionResponse message = worker.Read();
    ASSERT_EQ(message.inspections_size(), 1);
    v1::ReportInspectionRequest report;
    *report.mutable_worker() = worker.identity;
    report.set_inspection_id(message.inspections(0).inspection_id());
    *report.add_violations() = alone.violations(0);  // a worker checks the fields as well
    report.add_violations()->set_field("stages[0].data.files[0]");
    CallContext context;
    v1::ReportInspectionResponse response;
    EXPECT_TRUE(octavod->workers->ReportInspection(&context, report, &response).ok());
  });
  const v1::ValidateJobResponse response = Validate(octavod, spec);
  inspector.join();
  ASSERT_EQ(response.violations_size(), 2);
  EXPECT_EQ(response.violations(0).field(), "priority");
  EXPECT_EQ(response.violations(1).field(), "stages[0].data.files[0]");
}

TEST(ValidateJob, WarnsWhenTheWorkerDoesNotReportInTime) {
  CoordinatorOptions options;
  options.limits.inspection_timeout = absl::Milliseconds(20);
  TestCoordinator octavod(options);
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  worker.Beat();
  const v1::ValidateJobResponse response = Validate(octavod, SomeSpec());
  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_THAT(response.warnings(0), HasSubstr("not inspected by worker worker-a"));
}

}  // namespace
}  // namespace octavo::rpc
