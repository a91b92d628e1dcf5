#include "worker/agent/attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "tests/unit/agent/support.h"

namespace octavo::agent {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SystemClock kClock;

class AttemptTest : public ::testing::Test {
 protected:
  std::unique_ptr<Attempt> Start(const std::string& behaviour, RecordingSender* sender,
                                 const std::string& trainer = FakeTrainer()) {
    auto attempt = std::make_unique<Attempt>(
        MakeAssignment(behaviour), Attempt::Environment{.trainer = trainer,
                                                        .socket_folder = folder_.path(),
                                                        .memory_bytes = 1 << 20,
                                                        .threads = 1,
                                                        .stop_grace = absl::Milliseconds(300),
                                                        .pending_log_bytes = 1 << 16,
                                                        .pending_metric_points = 100,
                                                        .sender = sender,
                                                        .clock = &kClock,
                                                        .on_over = [] {}});
    attempt->Start();
    return attempt;
  }
  static bool Ends(const Attempt& attempt) {
    return Eventually([&] { return attempt.over(); });
  }
  // Process number of the trainer, once it has said it.
  static int ProcessOf(const RecordingSender& sender) {
    int process = 0;
    EXPECT_TRUE(Eventually([&] {
      const std::vector<std::string> lines = sender.Lines();
      return !lines.empty() && absl::StartsWith(lines[0], "process ") &&
             absl::SimpleAtoi(absl::StripPrefix(lines[0], "process "), &process);
    }));
    return process;
  }
  static v1::ReportAttemptFinishedRequest End(const RecordingSender& sender) {
    const auto ends = sender.Delivered<v1::ReportAttemptFinishedRequest>();
    EXPECT_EQ(ends.size(), 1u);
    return ends.empty() ? v1::ReportAttemptFinishedRequest() : ends[0];
  }

  TemporaryFolder folder_;
  RecordingSender sender_;
};

TEST_F(AttemptTest, ASuccessIsReportedWithItsReport) {
  const auto attempt = Start("succeed", &sender_);
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_EQ(sender_.Delivered<v1::ReportAttemptStartedRequest>().size(), 1u);
  EXPECT_EQ(sender_.Delivered<v1::CommitCheckpointRequest>().size(), 1u);
  EXPECT_FALSE(End(sender_).has_failure());
  EXPECT_EQ(End(sender_).report().steps(), 1);
}

TEST_F(AttemptTest, AFailureOfTheTrainerKeepsItsCause) {
  const auto attempt = Start("fail", &sender_);
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_EQ(End(sender_).failure().cause(), v1::FAILURE_CAUSE_INVALID_INPUT);
  EXPECT_EQ(End(sender_).failure().message(), "the corpus is empty");
}

TEST_F(AttemptTest, AKilledTrainerIsACrashWithSignalAndLastLine) {
  const auto attempt = Start("killed", &sender_);
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_EQ(End(sender_).failure().cause(), v1::FAILURE_CAUSE_TRAINER_CRASHED);
  EXPECT_THAT(End(sender_).failure().message(), HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(End(sender_).failure().message(), HasSubstr("its last line: last words"));
  EXPECT_THAT(sender_.Lines(), Contains("last words"));
}

TEST_F(AttemptTest, AnExitWithoutAReportIsACrashWithItsCode) {
  const auto attempt = Start("exit-3", &sender_);
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_EQ(End(sender_).failure().cause(), v1::FAILURE_CAUSE_TRAINER_CRASHED);
  EXPECT_THAT(End(sender_).failure().message(), HasSubstr("exit code 3"));
}

TEST_F(AttemptTest, AStopEndsEvenAStubbornTrainerAndSaysWhy) {
  for (const auto& [reason, cause] :
       {std::pair(StopReason::kRequested, v1::FAILURE_CAUSE_CANCELLED),
        std::pair(StopReason::kOutOfContact, v1::FAILURE_CAUSE_WORKER_LOST),
        std::pair(StopReason::kShutdown, v1::FAILURE_CAUSE_WORKER_LOST)}) {
    RecordingSender sender;
    const auto attempt = Start("stubborn", &sender);
    const int process = ProcessOf(sender);
    EXPECT_TRUE(IsAlive(process));
    attempt->Stop(reason);
    ASSERT_TRUE(Ends(*attempt));
    EXPECT_FALSE(IsAlive(process));
    EXPECT_EQ(End(sender).failure().cause(), cause);
  }
}

TEST_F(AttemptTest, AFencedAttemptIsKilledAndSaysNothingMore) {
  const auto attempt = Start("wait", &sender_);
  const int process = ProcessOf(sender_);
  attempt->Stop(StopReason::kFenced);
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_FALSE(IsAlive(process));
  EXPECT_THAT(sender_.Delivered<v1::ReportAttemptFinishedRequest>(), IsEmpty());
}

TEST_F(AttemptTest, AFencedAnswerKillsTheTrainer) {
  std::atomic<bool> fence{false};
  RecordingSender sender([&](const Fact&) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    if (fence) return absl::FailedPreconditionError("LEASE_FENCED: epoch 1");
    return v1::CommitCheckpointResponse();
  });
  const auto attempt = Start("chatty", &sender);
  const int process = ProcessOf(sender);
  fence = true;
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_FALSE(IsAlive(process));
}

TEST_F(AttemptTest, DestructionLeavesNoProcess) {
  auto attempt = Start("wait", &sender_);
  const int process = ProcessOf(sender_);
  attempt.reset();
  EXPECT_FALSE(IsAlive(process));
}

TEST_F(AttemptTest, AMissingTrainerIsAFailureNotACrashOfTheAgent) {
  const auto attempt = Start("succeed", &sender_, "/nonexistent/octavo-trainer");
  ASSERT_TRUE(Ends(*attempt));
  EXPECT_EQ(End(sender_).failure().cause(), v1::FAILURE_CAUSE_INTERNAL);
  EXPECT_THAT(End(sender_).failure().message(), HasSubstr("/nonexistent/octavo-trainer"));
}

}  // namespace
}  // namespace octavo::agent
