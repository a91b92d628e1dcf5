// The daemon as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/support/server_process.h"
#include "tests/support/server_worker.h"

namespace octavo {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;
using testing_support::CallContext;
using testing_support::OctavodProcess;
using testing_support::Point;
using testing_support::ScriptedWorker;
using testing_support::SomeSpec;
using testing_support::TemporaryFolder;

TEST(Octavod, KeepsEveryAcknowledgedJobWhenItIsKilled) {
  TemporaryFolder folder;
  std::vector<std::string> ids;
  {
    OctavodProcess octavod(folder.path());
    ASSERT_TRUE(octavod.AwaitListening());
    for (int i = 0; i < 20; ++i)
      ids.push_back(octavod.stubs->Submit(SomeSpec(), absl::StrCat("request-", i)).id());
    octavod.Kill();
  }
  OctavodProcess octavod(folder.path());
  ASSERT_TRUE(octavod.AwaitListening());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(octavod.stubs->Get(ids[i]).id(), ids[i]);
    EXPECT_EQ(octavod.stubs->Submit(SomeSpec(), absl::StrCat("request-", i)).id(), ids[i])
        << "a repetition is the same job";
  }
}

TEST(Octavod, StopsCleanlyOnSigtermWhileCallsAreOpen) {
  TemporaryFolder folder;
  OctavodProcess octavod(folder.path());
  ASSERT_TRUE(octavod.AwaitListening());
  v1::WatchJobRequest request;
  request.set_job_id(octavod.stubs->Submit().id());
  CallContext watch_context, session_context;
  const auto watch = octavod.stubs->jobs->WatchJob(&watch_context, request);
  v1::Job job;
  ASSERT_TRUE(watch->Read(&job));
  const auto session = octavod.stubs->workers->Session(&session_context);
  const absl::Time start = absl::Now();
  octavod.Terminate();
  EXPECT_EQ(octavod.AwaitExit(), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_FALSE(watch->Read(&job));
  EXPECT_FALSE(watch->Finish().ok());
  EXPECT_FALSE(session->Finish().ok());
}

TEST(Octavod, RefusesOnAFullDiskAndGoesOnWhenThereIsRoom) {
  TemporaryFolder folder;
  OctavodProcess octavod(folder.path());
  ASSERT_TRUE(octavod.AwaitListening());
  const std::string first = octavod.stubs->Submit().id();
  struct stat log {};
  ASSERT_EQ(stat((folder.path() + "/octavo.sqlite-wal").c_str(), &log), 0);
  octavod.LimitFileSize(static_cast<rlim_t>(log.st_size) + 6000);
  int refused = 0;
  for (int i = 0; i < 5; ++i) {
    octavod.stubs->Submit(SomeSpec(), absl::StrCat("full-", i));
    if (octavod.stubs->status.ok()) continue;
    ++refused;
    EXPECT_EQ(octavod.stubs->status.error_code(), StatusCode::RESOURCE_EXHAUSTED)
        << octavod.stubs->status.error_message();
    EXPECT_THAT(octavod.stubs->status.error_message(), HasSubstr(folder.path()));
  }
  EXPECT_GE(refused, 4);
  EXPECT_EQ(octavod.stubs->Get(first).id(), first) << "it serves on";
  EXPECT_EQ(octavod.stubs->List().jobs_size(), 6 - refused);
  octavod.LimitFileSize(RLIM_INFINITY);
  EXPECT_NE(octavod.stubs->Submit(SomeSpec(), "full-4").id(), "")
      << octavod.stubs->status.error_message();
}

// A worker and its job go on over the same stream as long as the disk is full.
TEST(Octavod, LosesNoAttemptAndNoHeartbeatToAFullDisk) {
  TemporaryFolder folder;
  OctavodProcess octavod(folder.path());
  ASSERT_TRUE(octavod.AwaitListening());
  ScriptedWorker worker(*octavod.stubs);
  ASSERT_TRUE(worker.Register().ok());
  const std::string job_id = octavod.stubs->Submit().id();
  const v1::LeaseIdentity lease = worker.AwaitAssignment().lease();
  ASSERT_TRUE(worker.Start(lease).ok());
  octavod.LimitFileSize(4096);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(worker.Push(lease, {Point("train/loss", 1, 2.0)}).error_code(),
              StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(worker.Beat({lease}).renewed_size(), 1);
    EXPECT_EQ(octavod.stubs->Get(job_id).state(), v1::JOB_STATE_RUNNING);
  }
  octavod.LimitFileSize(RLIM_INFINITY);
  EXPECT_TRUE(worker.Push(lease, {Point("train/loss", 1, 2.0)}).ok());
  EXPECT_TRUE(worker.Succeed(lease).ok());
  const v1::Job job = octavod.stubs->Get(job_id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempts_size(), 1);
}

TEST(Octavod, LeavesADataFolderToItsHolder) {
  TemporaryFolder folder;
  OctavodProcess first(folder.path());
  ASSERT_TRUE(first.AwaitListening());
  OctavodProcess second(folder.path());
  EXPECT_FALSE(second.AwaitListening());
  EXPECT_EQ(second.AwaitExit(), 1);
  EXPECT_THAT(second.RemainingOutput(), HasSubstr("uses this data folder"));
  first.stubs->Submit();
  EXPECT_TRUE(first.stubs->status.ok());
}

TEST(Octavod, SaysThatAPortIsInUse) {
  TemporaryFolder folder;
  OctavodProcess first(folder.path() + "/first");
  ASSERT_TRUE(first.AwaitListening());
  std::ifstream file(folder.path() + "/first/addresses.json");
  const std::string address = nlohmann::json::parse(file).at("grpc");
  OctavodProcess second(folder.path() + "/second", {"--listen", address});
  EXPECT_FALSE(second.AwaitListening());
  EXPECT_EQ(second.AwaitExit(), 1);
  const std::string output = second.RemainingOutput();
  EXPECT_THAT(output, HasSubstr(address));
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
}

TEST(Octavod, WarnsWhenOtherMachinesCanReachIt) {
  TemporaryFolder folder;
  OctavodProcess octavod(folder.path(), {"--listen", "0.0.0.0:0"});
  ASSERT_TRUE(octavod.AwaitListening());
  octavod.Terminate();
  EXPECT_EQ(octavod.AwaitExit(), 0);
  EXPECT_THAT(octavod.RemainingOutput(), HasSubstr("without TLS and authentication"));
}

}  // namespace
}  // namespace octavo
