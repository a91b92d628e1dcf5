// Ends of attempts, restarts and their budget, and a coordinator that starts anew in between.
#include "absl/strings/str_cat.h"
#include "tests/unit/core/scene.h"

namespace octavo::core {
namespace {

using ::testing::HasSubstr;

class AttemptTest : public testing::Test {
 protected:
  void SetUp() override { fleet.Join("w"); }
  std::string RunningJob(const JobOptions& options = {}) {
    const std::string id = fleet.Submit(options).id();
    EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
    fleet.Beat(worker, {fleet.LeaseOf(id)});
    return id;
  }
  Scene fleet;
  const v1::WorkerIdentity worker = fleet.Identity("w");
};

TEST_F(AttemptTest, SuccessEndsTheJobWithItsReport) {
  const std::string id = RunningJob();
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id)).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(fleet.Job(id).report().steps(), 7);
  EXPECT_TRUE(fleet.Job(id).has_end_time());
}

TEST_F(AttemptTest, TheSameEndTwiceIsOneEndEvenAcrossARestart) {
  const std::string id = RunningJob();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  EXPECT_TRUE(fleet.Finish(lease).ok());
  const int64_t version = fleet.Job(id).version();
  EXPECT_TRUE(fleet.Finish(lease).ok());
  fleet.Restart();
  EXPECT_TRUE(fleet.Finish(lease).ok());
  EXPECT_EQ(fleet.Job(id).version(), version);
  EXPECT_EQ(fleet.core().counters().fenced, 0);
}

TEST_F(AttemptTest, AFinishedJobIsNeverOverwritten) {
  const std::string id = RunningJob();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  EXPECT_TRUE(fleet.Finish(lease).ok());
  fleet.Restart();
  EXPECT_TRUE(IsFenced(fleet.Finish(lease, v1::FAILURE_CAUSE_TRAINER_CRASHED)));
  fleet.Pass(absl::Minutes(1));
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AttemptTest, WhatWouldRepeatIsNotRetried) {
  for (const v1::FailureCause cause :
       {v1::FAILURE_CAUSE_INVALID_INPUT, v1::FAILURE_CAUSE_NON_FINITE,
        v1::FAILURE_CAUSE_OUT_OF_MEMORY, v1::FAILURE_CAUSE_STORAGE}) {
    const std::string id = RunningJob();
    EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), cause).ok());
    EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(fleet.Job(id).failure().cause(), cause);
    EXPECT_EQ(fleet.Job(id).failure().message(), "as told");
  }
}

TEST_F(AttemptTest, EveryRetriedCauseIsBoundedByTheBudget) {
  for (const v1::FailureCause cause :
       {v1::FAILURE_CAUSE_TRAINER_CRASHED, v1::FAILURE_CAUSE_WORKER_LOST,
        v1::FAILURE_CAUSE_INTERNAL, v1::FAILURE_CAUSE_CANCELLED}) {
    const std::string id = RunningJob({.max_restarts = 3});
    for (int attempt = 1; attempt <= 4; ++attempt) {
      ASSERT_EQ(fleet.Job(id).epoch(), attempt);
      EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), cause).ok());
      fleet.PassBeating(absl::Seconds(10), worker);
    }
    EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(fleet.Job(id).attempts_size(), 4);
    EXPECT_EQ(fleet.Job(id).failure().cause(), cause);
    EXPECT_THAT(fleet.Job(id).failure().message(), HasSubstr("retries.max_restarts is 3"));
  }
}

TEST_F(AttemptTest, ABudgetOfZeroRestartsNothing) {
  const std::string id = RunningJob({.max_restarts = 0});
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_FAILED);
}

TEST_F(AttemptTest, RestartsWaitTwiceAsLongEachTimeUntilACheckpointShowsProgress) {
  const std::string id = RunningJob({.max_restarts = 100});
  const auto seconds_to_restart = [&] {
    const int64_t epoch = fleet.Job(id).epoch();
    EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
    int seconds = 0;
    for (; fleet.Job(id).epoch() == epoch && seconds < 1000; ++seconds) {
      fleet.PassBeating(absl::Seconds(1), worker);
    }
    return seconds;
  };
  for (const int expected : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(seconds_to_restart(), expected);
  }
  EXPECT_TRUE(fleet.Commit(fleet.LeaseOf(id), 5, "/c5").ok());
  EXPECT_EQ(seconds_to_restart(), 1);
  EXPECT_EQ(seconds_to_restart(), 1) << "the first one in a row from step 5";
  EXPECT_EQ(seconds_to_restart(), 2);
}

TEST_F(AttemptTest, AWaitingRestartSaysWhyAndDoesNotHoldTheDevice) {
  const std::string id = RunningJob();
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
  EXPECT_EQ(fleet.Job(id).pending_reason(), "restart 1 of 10 waits 1s after: as told");
  EXPECT_EQ(fleet.Submit().state(), v1::JOB_STATE_RUNNING);
}

TEST_F(AttemptTest, ARestartResumesFromTheNewestCommittedCheckpoint) {
  const std::string id = RunningJob();
  EXPECT_TRUE(fleet.Commit(fleet.LeaseOf(id), 10, "/c10").ok());
  EXPECT_TRUE(fleet.Commit(fleet.LeaseOf(id), 20, "/c20").ok());
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
  fleet.Pass(absl::Seconds(1));
  const v1::SessionResponse response = fleet.Beat(worker);
  ASSERT_EQ(response.assignments_size(), 1);
  EXPECT_EQ(response.assignments(0).resume_from().folder(), "/c20");
  EXPECT_EQ(fleet.Job(id).attempts(1).start_step(), 20);
}

TEST_F(AttemptTest, ARestartedCoordinatorTakesRunningAttemptsBack) {
  const std::string id = RunningJob();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  fleet.Pass(absl::Seconds(10));
  fleet.Restart();
  fleet.Pass(absl::Seconds(14));  // a lease anew, whatever was left of the old one
  EXPECT_EQ(fleet.Register(worker, {Scene::Cpu()}, {lease}).keep_size(), 1);
  EXPECT_EQ(fleet.Beat(worker, {lease}).renewed_size(), 1);
  EXPECT_EQ(fleet.Submit().state(), v1::JOB_STATE_PENDING) << "its device is taken";
  EXPECT_TRUE(fleet.Finish(lease).ok());
  EXPECT_EQ(fleet.Job(id).attempts_size(), 1);
  EXPECT_EQ(fleet.Job("job-2").state(), v1::JOB_STATE_RUNNING);
}

TEST_F(AttemptTest, AnAgentThatDiedWhileTheCoordinatorWasDownIsNoticedWhenItRegisters) {
  const std::string id = RunningJob();
  fleet.Restart();
  fleet.Register(fleet.Identity("w", "b"));
  EXPECT_EQ(fleet.Job(id).attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
}

TEST_F(AttemptTest, AWorkerThatNeverReturnsAfterARestartIsLostWithinOneLease) {
  const std::string id = RunningJob({.max_restarts = 0});
  fleet.Restart();
  fleet.Pass(absl::Seconds(17));
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(fleet.Job(id).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
}

// The write of the grant was durable, its signal was not sent.
TEST_F(AttemptTest, AnAssignmentLostWithTheCoordinatorIsRepeatedUnderTheSameEpoch) {
  const std::string id = fleet.Submit().id();
  fleet.Restart();
  fleet.Register(worker);
  const v1::SessionResponse response = fleet.Beat(worker);
  ASSERT_EQ(response.assignments_size(), 1);
  EXPECT_EQ(response.assignments(0).lease().epoch(), 1);
  EXPECT_EQ(fleet.Job(id).attempts_size(), 1);
}

TEST_F(AttemptTest, ACancelIsRememberedAcrossARestart) {
  const std::string id = RunningJob();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  fleet.Apply(CancelJob{id});
  fleet.Restart();
  fleet.Register(worker, {Scene::Cpu()}, {lease});
  EXPECT_EQ(fleet.Beat(worker, {lease}).stop_size(), 1);
  EXPECT_TRUE(fleet.StatusOf(CancelJob{id}).ok());
  EXPECT_TRUE(fleet.Finish(lease, v1::FAILURE_CAUSE_CANCELLED).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(AttemptTest, EpochsGrowAndNeverRepeatAcrossRestarts) {
  const std::string id = RunningJob();
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_EQ(fleet.Job(id).epoch(), epoch);
    fleet.Restart();
    const std::string incarnation = absl::StrCat("n", epoch);
    fleet.Register(fleet.Identity("w", incarnation));
    fleet.PassBeating(absl::Seconds(5), fleet.Identity("w", incarnation));
  }
}

}  // namespace
}  // namespace octavo::core
