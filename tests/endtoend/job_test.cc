// What a user sees of jobs when nothing breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "base/file.h"
#include "tests/endtoend/cluster.h"

namespace octavo::endtoend {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Job, SucceedsAndReportsWhatRanInFp8) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  const std::string id = cluster.Submit(cluster.TinyJob(30));
  const v1::Job job = cluster.AwaitEnd(id);
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.ShortDebugString();

  const v1::RunReport& report = job.report();
  EXPECT_EQ(report.steps(), 30);
  // 7 linear layers in each of 2 layers, each with a forward and two backward products, in 30
  // steps.
  EXPECT_EQ(report.fp8_gemms(), 7 * 2 * 3 * 30);
  EXPECT_GT(report.tokens(), 0);
  EXPECT_GT(report.tokens_per_second(), 0);
  EXPECT_GT(report.peak_memory_bytes(), 0);
  EXPECT_GT(report.parameters(), 0);
  EXPECT_THAT(report.weights_sha256(), SizeIs(64));
  EXPECT_TRUE(report.holdout().has_loss_fp8());
  EXPECT_LT(report.holdout().loss_bf16(), report.holdout().initial_loss_bf16())
      << "it learnt nothing";
  const std::map<int64_t, double> losses = cluster.Losses(id);
  EXPECT_THAT(losses, SizeIs(30));
  EXPECT_DOUBLE_EQ(losses.rbegin()->second, report.final_loss());
  EXPECT_TRUE(fs::exists(report.export_folder() + "/model.safetensors"));
  EXPECT_TRUE(fs::exists(report.checkpoint_folder() + "/manifest.json"));
  EXPECT_TRUE(fs::exists(cluster.folder() + "/out/" + id + "/report.epoch-1.json"));
  EXPECT_THAT(cluster.Logs(id), Contains(HasSubstr("step 1/30 loss ")));
}

TEST(Job, WaitsForAWorkerAndThenRuns) {
  Cluster cluster;
  cluster.StartCoordinator();
  const std::string id = cluster.Submit(cluster.TinyJob(3));
  const v1::Job waiting =
      cluster.Await(id, [](const v1::Job& job) { return !job.pending_reason().empty(); });
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_PENDING);
  cluster.StartWorker();
  EXPECT_EQ(cluster.AwaitEnd(id).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Job, ACancelledOneStopsAndLeavesNoProcess) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  const std::string id = cluster.Submit(cluster.TinyJob(1000000));
  cluster.AwaitStep(id, 3);
  EXPECT_THAT(cluster.Trainers(), SizeIs(1));
  cluster.Cancel(id);
  EXPECT_EQ(cluster.AwaitEnd(id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(Eventually(absl::Seconds(10), [&] { return cluster.Trainers().empty(); }));
  cluster.Cancel(id);  // idempotent
}

TEST(Job, AWorkerThatIsToldToStopHandsItsJobOn) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker({.id = "first"});
  v1::JobSpec spec = cluster.TinyJob(400);
  spec.mutable_stages(0)->mutable_checkpoint()->set_every_steps(20);
  const std::string id = cluster.Submit(spec);
  cluster.AwaitStep(id, 30);
  cluster.StartWorker({.id = "second"});
  cluster.worker("first").Signal(SIGTERM);
  EXPECT_EQ(cluster.worker("first").AwaitExit(absl::Seconds(12)), 0);
  const v1::Job job = cluster.AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).failure().message(), "the worker is shutting down");
  EXPECT_EQ(job.attempts(1).worker_id(), "second");
  EXPECT_GE(job.attempts(1).start_step(), 20);
}

TEST(Validate, TellsThePlanWithoutRunning) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  const auto answer = cluster.Validate(cluster.TinyJob(10));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->violations_size(), 0) << answer->ShortDebugString();
  EXPECT_GT(answer->plan().parameters(), 0);
  EXPECT_GT(answer->plan().train_tokens(), 0);
  EXPECT_EQ(answer->plan().tokens_per_step(), 4 * 64);
}

TEST(Validate, NamesEveryBadInputAtOnce) {
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  v1::JobSpec spec = cluster.TinyJob(10);
  spec.mutable_stages(0)->mutable_data()->set_files(0, "/nonexistent.txt");
  spec.mutable_stages(0)->mutable_recipe()->add_keep_bf16("no.such.module");
  const auto answer = cluster.Validate(spec);
  ASSERT_TRUE(answer.ok()) << answer.status();
  std::vector<std::string> fields;
  for (const v1::Violation& violation : answer->violations()) fields.push_back(violation.field());
  EXPECT_THAT(fields, Contains("stages[0].data.files[0]"));
  EXPECT_THAT(fields, Contains(HasSubstr("keep_bf16")));
}

}  // namespace
}  // namespace octavo::endtoend
