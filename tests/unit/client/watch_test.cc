// Watching a job while it changes, while the coordinator restarts, and leaving it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <ostream>
#include <streambuf>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/client/client_run.h"

namespace octavo::client {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kDeadline = absl::Seconds(30);

v1::Job Running(int64_t version) {
  v1::Job job;
  job.set_id("job-a");
  job.set_version(version);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->set_name("tiny");
  job.mutable_spec()->add_stages()->set_steps(4);
  job.mutable_spec()->mutable_stages(0)->mutable_recipe()->set_name("fp8");
  v1::Attempt& attempt = *job.add_attempts();
  attempt.set_epoch(1);
  attempt.set_worker_id("w1");
  return job;
}

v1::Job Succeeded(int64_t version) {
  v1::Job job = Running(version);
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_start_time()->set_seconds(1000);
  job.mutable_end_time()->set_seconds(1090);
  job.mutable_report()->set_steps(4);
  job.mutable_report()->set_final_loss(1.25);
  return job;
}

v1::Job Failed() {
  v1::Job job = Running(9);
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_failure()->set_cause(v1::FAILURE_CAUSE_NON_FINITE);
  job.mutable_failure()->set_message("loss is nan at step 3");
  return job;
}

// A stream buffer that lets another thread wait for what is written.
class WatchedOutput final : public std::streambuf {
 public:
  bool WaitFor(const std::string& text) {
    absl::MutexLock lock(&mutex_);
    const auto written = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return text_.find(text) != std::string::npos;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&written), kDeadline);
  }
  std::string text() const {
    absl::MutexLock lock(&mutex_);
    return text_;
  }

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    absl::MutexLock lock(&mutex_);
    text_.append(data, static_cast<size_t>(size));
    return size;
  }
  int_type overflow(int_type c) override {
    absl::MutexLock lock(&mutex_);
    text_ += static_cast<char>(c);
    return c;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

// `octavo watch job-a` on a thread of its own.
class Watcher {
 public:
  Watcher(Environment environment, std::vector<std::string> arguments) {
    environment.terminal.out = &out_stream_;
    environment.terminal.error = &error_stream_;
    environment.interrupted = [this] { return interrupted_.load(); };
    thread_ =
        std::thread([this, environment = std::move(environment), arguments = std::move(arguments)] {
          code_ = RunClient(arguments, environment);
        });
  }
  ~Watcher() {
    if (!thread_.joinable()) return;
    Interrupt();  // a failed expectation must not wait for the job
    Join();
  }

  void Interrupt() { interrupted_ = true; }
  ExitCode Join() {
    thread_.join();
    return code_;
  }

  WatchedOutput out;
  WatchedOutput error;

 private:
  std::ostream out_stream_{&out};
  std::ostream error_stream_{&error};
  std::atomic<bool> interrupted_{false};
  ExitCode code_ = ExitCode::kInternal;
  std::thread thread_;
};

TEST(Watch, SaysWhatHappensAndHowItEnded) {
  FakeCoordinator coordinator;
  coordinator.Put(Running(1));
  Watcher watcher(EnvironmentOf(&coordinator), {"watch", "job-a"});
  ASSERT_TRUE(watcher.out.WaitFor("running on worker w1, attempt 1"));
  coordinator.AddPoint("train/loss", 1, 2.5);
  ASSERT_TRUE(watcher.out.WaitFor("step 1/4  loss 2.5000"));
  v1::Job job = Running(2);
  job.mutable_checkpoint()->set_step(2);
  coordinator.Put(job);
  ASSERT_TRUE(watcher.out.WaitFor("checkpoint of step 2"));
  coordinator.Put(Succeeded(3));
  EXPECT_EQ(watcher.Join(), ExitCode::kOk);
  EXPECT_THAT(watcher.out.text(), HasSubstr("job-a (tiny, fp8, 4 steps)\n"));
  EXPECT_THAT(watcher.out.text(),
              HasSubstr("job-a succeeded: 4 steps in 1 min 30 s, final loss 1.2500\n"));
  EXPECT_EQ(watcher.error.text(), "");
}

TEST(Watch, AFailedJobIsCode1AndSaysWhy) {
  FakeCoordinator coordinator;
  coordinator.Put(Failed());
  const ClientRun run = RunOctavo(EnvironmentOf(&coordinator), {"watch", "job-a"});
  EXPECT_EQ(run.code, ExitCode::kFailed);
  EXPECT_THAT(run.out, HasSubstr("job-a failed: non finite: loss is nan at step 3"));
}

TEST(Watch, TellsThatAnAttemptWasLostAndAnotherRuns) {
  FakeCoordinator coordinator;
  coordinator.Put(Running(1));
  Watcher watcher(EnvironmentOf(&coordinator), {"watch", "job-a"});
  ASSERT_TRUE(watcher.out.WaitFor("attempt 1"));
  v1::Job job = Running(2);
  job.mutable_attempts(0)->mutable_failure()->set_cause(v1::FAILURE_CAUSE_WORKER_LOST);
  job.mutable_attempts(0)->mutable_failure()->set_message("the lease lapsed");
  v1::Attempt& attempt = *job.add_attempts();
  attempt.set_epoch(2);
  attempt.set_worker_id("w2");
  attempt.set_start_step(2);
  coordinator.Put(job);
  ASSERT_TRUE(watcher.out.WaitFor("attempt 1 ended: worker lost: the lease lapsed"));
  ASSERT_TRUE(
      watcher.out.WaitFor("running on worker w2, attempt 2, from the checkpoint of step 2"));
  coordinator.Put(Succeeded(3));
  EXPECT_EQ(watcher.Join(), ExitCode::kOk);
}

TEST(Watch, DrawsABarOnATerminal) {
  FakeCoordinator coordinator;
  coordinator.Put(Running(1));
  coordinator.AddPoint("train/loss", 1, 2.5);
  Environment environment = EnvironmentOf(&coordinator);
  environment.terminal.interactive = true;
  Watcher watcher(environment, {"watch", "job-a"});
  ASSERT_TRUE(watcher.out.WaitFor("\r\x1b[K##......  25%  1/4  loss 2.5000"));
  coordinator.Put(Succeeded(2));
  EXPECT_EQ(watcher.Join(), ExitCode::kOk);
}

TEST(Watch, CtrlCLeavesTheJobRunningAndSaysSo) {
  FakeCoordinator coordinator;
  coordinator.Put(Running(1));
  Watcher watcher(EnvironmentOf(&coordinator), {"watch", "job-a"});
  ASSERT_TRUE(watcher.out.WaitFor("attempt 1"));
  watcher.Interrupt();
  EXPECT_EQ(watcher.Join(), ExitCode::kInterrupted);
  EXPECT_THAT(watcher.error.text(), HasSubstr("job-a runs on"));
}

TEST(Watch, SurvivesARestartOfTheCoordinator) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const int port = coordinator->port();
  coordinator->Put(Running(1));
  coordinator->AddPoint("train/loss", 1, 2.5);
  Environment environment = BareEnvironment();
  environment.connect = Connect;
  Watcher watcher(environment, {"watch", "job-a", "--server", coordinator->address()});
  ASSERT_TRUE(watcher.out.WaitFor("step 1/4"));
  coordinator.reset();
  ASSERT_TRUE(watcher.error.WaitFor("lost the coordinator at"));
  coordinator = std::make_unique<FakeCoordinator>(port);
  coordinator->Put(Succeeded(2));
  coordinator->AddPoint("train/loss", 4, 1.25);
  EXPECT_EQ(watcher.Join(), ExitCode::kOk);
  EXPECT_THAT(watcher.error.text(), HasSubstr("connected again to the coordinator at"));
  EXPECT_THAT(watcher.out.text(), HasSubstr("step 4/4  loss 1.2500"));
}

TEST(Watch, GivesUpOnACoordinatorThatStaysAway) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  coordinator->Put(Running(1));
  Environment environment = BareEnvironment();
  environment.connect = Connect;
  Watcher watcher(environment,
                  {"watch", "job-a", "--patience", "0.3", "--server", coordinator->address()});
  ASSERT_TRUE(watcher.out.WaitFor("attempt 1"));
  coordinator.reset();
  EXPECT_EQ(watcher.Join(), ExitCode::kUnreachable);
  EXPECT_THAT(watcher.error.text(), HasSubstr("trying again for up to 0.3 s"));
}

}  // namespace
}  // namespace octavo::client
