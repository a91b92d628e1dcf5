#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/support/job_spec.h"
#include "server/loop/loop_thread.h"
#include "server/storage/sqlite_store.h"
#include "tests/support/server_jobs.h"
#include "tests/support/temporary_folder.h"

namespace octavo::loop {
namespace {

using testing::HasSubstr;
using testing_support::SomeSpec;
using testing_support::TemporaryFolder;

// What a posted event was answered.
class Outcome {
 public:
  CoreLoop::Answered Take() {
    return CoreLoop::Answered([this](absl::StatusOr<core::AnswerBody> body) {
      body_ = std::move(body);
      done_.Notify();
    });
  }
  const absl::StatusOr<core::AnswerBody>& Await() {
    EXPECT_TRUE(done_.WaitForNotificationWithTimeout(absl::Seconds(20)));
    return body_;
  }

 private:
  absl::Notification done_;
  absl::StatusOr<core::AnswerBody> body_ = absl::UnknownError("not answered");
};

class CoreLoopTest : public testing::Test {
 protected:
  void Start(const CoreLoopOptions& options = {}, int64_t max_bytes = 0) {
    thread_ = nullptr;
    loop_ = nullptr;
    auto store =
        storage::SqliteStore::Open({.path = folder_.path() + "/s", .max_bytes = max_bytes});
    ASSERT_TRUE(store.ok()) << store.status();
    auto loop = CoreLoop::Open(options, *std::move(store), &clock_);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    thread_ = std::make_unique<LoopThread>(loop_.get());
  }

  core::SubmitJob Submission() {
    core::SubmitJob submit;
    submit.request.set_request_id(absl::StrCat("request-", ++submitted_));
    *submit.request.mutable_spec() = SomeSpec();
    FillDefaults(submit.request.mutable_spec());
    submit.job_id = absl::StrCat("job-", submitted_);
    submit.spec_sha256 = "hash";
    return submit;
  }
  absl::StatusOr<core::AnswerBody> Submit() {
    Outcome outcome;
    loop_->Decide(Submission(), {}, outcome.Take());
    return outcome.Await();
  }
  size_t StoredJobs() {
    size_t count = 0;
    loop_->Read([&](const core::Core& core) { count = core.jobs().List(0, 1000000, {}).size(); });
    return count;
  }

  // Keeps the loop busy until Resume, so that what is posted meanwhile waits.
  void Pause() {
    absl::Notification paused;
    loop_->Call([&](absl::StatusOr<CoreLoop::Context*>) {
      paused.Notify();
      resume_.WaitForNotification();
    });
    paused.WaitForNotification();
  }
  void Resume() { resume_.Notify(); }

  TemporaryFolder folder_;
  SystemClock clock_;
  std::unique_ptr<CoreLoop> loop_;
  std::unique_ptr<LoopThread> thread_;
  absl::Notification resume_;
  int64_t submitted_ = 0;
};

TEST_F(CoreLoopTest, AnswersOnceTheJobIsStored) {
  Start();
  ASSERT_TRUE(Submit().ok());
  Start();
  EXPECT_EQ(StoredJobs(), 1u);
}

TEST_F(CoreLoopTest, CommitsWhatWaitsInOneTransaction) {
  Start();
  Pause();
  std::vector<Outcome> outcomes(100);
  for (Outcome& outcome : outcomes) loop_->Decide(Submission(), {}, outcome.Take());
  Resume();
  for (Outcome& outcome : outcomes) EXPECT_TRUE(outcome.Await().ok());
  uint64_t commits = 0;
  const telemetry::Snapshot snapshot = loop_->TakeSnapshot();
  for (const uint64_t count : snapshot.commit_seconds.counts()) commits += count;
  EXPECT_EQ(commits, 1u);
  EXPECT_EQ(StoredJobs(), 100u);
}

TEST_F(CoreLoopTest, RefusesRequestsBeyondItsQueue) {
  Start({.core = {}, .queue_limit = 2});
  Pause();
  std::vector<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) loop_->Decide(Submission(), {}, outcome.Take());
  EXPECT_EQ(outcomes[2].Await().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(outcomes[2].Await().status().message()), HasSubstr("queue-limit of 2"));
  Resume();
  EXPECT_TRUE(outcomes[0].Await().ok());
  EXPECT_TRUE(outcomes[1].Await().ok());
  EXPECT_TRUE(Submit().ok()) << "there is room again";
}

TEST_F(CoreLoopTest, RefusesRequestsBeyondItsQueuesBytes) {
  Start({.core = {}, .queue_bytes_limit = 1000});
  Pause();
  Outcome small, large;
  loop_->Decide(Submission(), {.bytes = 600}, small.Take());
  loop_->Decide(Submission(), {.bytes = 600}, large.Take());
  EXPECT_EQ(large.Await().status().code(), absl::StatusCode::kResourceExhausted);
  Resume();
  EXPECT_TRUE(small.Await().ok());
}

TEST_F(CoreLoopTest, DoesNotServeWhatNobodyWaitsForAnyMore) {
  Start();
  Outcome outcome;
  loop_->Decide(Submission(), {.deadline = clock_.Monotonic() - absl::Seconds(1)}, outcome.Take());
  EXPECT_EQ(outcome.Await().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(StoredJobs(), 0u);
}

// The core must not know of a job that the disk does not hold, and must go on with those that it
// does.
TEST_F(CoreLoopTest, ForgetsWhatAFullStoreDidNotTake) {
  Start({}, 96 << 10);
  size_t acknowledged = 0;
  absl::Status refused;
  while (refused.ok()) {
    refused = Submit().status();
    if (refused.ok()) ++acknowledged;
    ASSERT_LT(acknowledged, 10000u);
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(folder_.path() + "/s"));
  EXPECT_EQ(StoredJobs(), acknowledged);
  EXPECT_EQ(loop_->TakeSnapshot().commit_failures, 1);
  Start({}, 1 << 20);
  EXPECT_EQ(StoredJobs(), acknowledged);
  EXPECT_TRUE(Submit().ok());
}

TEST_F(CoreLoopTest, AnswersEveryRequestWhenItStops) {
  Start();
  Pause();
  Outcome waiting;
  loop_->Decide(Submission(), {}, waiting.Take());
  Resume();
  thread_ = nullptr;
  EXPECT_TRUE(waiting.Await().ok());
  Outcome late;
  loop_->Decide(Submission(), {}, late.Take());
  EXPECT_EQ(late.Await().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StoredJobs(), 1u) << "reads need no thread";
}

TEST(Inspections, AreLimitedAnsweredAndExpire) {
  Inspections inspections(1);
  std::vector<absl::StatusOr<v1::ReportInspectionRequest>> answers;
  const auto waiting = [&] {
    return Inspections::Waiting(
        [&](absl::StatusOr<v1::ReportInspectionRequest> report) { answers.push_back(report); });
  };
  v1::ReportInspectionRequest report;
  report.set_inspection_id(inspections.Begin(absl::Seconds(10), waiting()));
  EXPECT_EQ(inspections.Begin(absl::Seconds(10), waiting()), "");
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status().code(), absl::StatusCode::kResourceExhausted);
  inspections.Report(report);
  inspections.Report(report);  // nobody waits any more
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers[1].ok());
  inspections.Begin(absl::Seconds(10), waiting());
  inspections.Expire(absl::Seconds(9));
  EXPECT_EQ(answers.size(), 2u);
  inspections.Expire(absl::Seconds(10));
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[2].status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace octavo::loop
