// What cut lines, silent workers and slow coordinators do to running attempts.
#include "tests/unit/core/scene.h"

namespace octavo::core {
namespace {

class LeaseTest : public testing::Test {
 protected:
  void SetUp() override {
    fleet.Join("w");
    id = fleet.Submit().id();
    lease = fleet.LeaseOf(id);
    fleet.Beat(worker, {lease});
  }
  Scene fleet;
  const v1::WorkerIdentity worker = fleet.Identity("w");
  std::string id;
  v1::LeaseIdentity lease;
};

TEST_F(LeaseTest, AnAssignmentCarriesWhatTheWorkerNeeds) {
  Scene other;
  const std::string baseline = other.Submit().id();
  other.Apply(CancelJob{baseline});
  const std::string wanted = other.Submit({.baseline = baseline}).id();
  const v1::SessionResponse response = other.Join("w", {Scene::Cpu(kGibibyte, 3)});
  ASSERT_EQ(response.assignments_size(), 1);
  const v1::Assignment& assignment = response.assignments(0);
  EXPECT_EQ(assignment.lease().job_id(), wanted);
  EXPECT_EQ(assignment.lease().epoch(), 1);
  EXPECT_EQ(assignment.device_index(), 3);
  EXPECT_EQ(assignment.baseline().id(), baseline);
  EXPECT_FALSE(assignment.has_resume_from());
  EXPECT_GT(response.acknowledged_sequence(), 0);
}

TEST_F(LeaseTest, HeartbeatsKeepAnAttemptForEver) {
  fleet.PassBeating(absl::Minutes(5), worker, {lease});
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(fleet.Job(id).epoch(), 1);
}

TEST_F(LeaseTest, CutsShorterThanTheLeaseCostNothingHoweverOftenTheyCome) {
  for (int cut = 0; cut < 25; ++cut) {
    fleet.Pass(absl::Seconds(14));
    EXPECT_EQ(fleet.Workers()[0].state(), v1::WORKER_STATE_UNREACHABLE);
    EXPECT_EQ(fleet.Beat(worker, {lease}).renewed_size(), 1);
    EXPECT_EQ(fleet.Workers()[0].state(), v1::WORKER_STATE_CONNECTED);
  }
  EXPECT_EQ(fleet.Job(id).attempts_size(), 1);
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(LeaseTest, AnUnreachableWorkerGetsNoJobsAndKeepsItsOwn) {
  fleet.Pass(absl::Seconds(6));
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
  fleet.Register(fleet.Identity("x"));
  EXPECT_EQ(fleet.Submit().state(), v1::JOB_STATE_PENDING) << "x sent no heartbeat yet";
  fleet.Beat(fleet.Identity("x"));
  EXPECT_EQ(fleet.Job("job-2").state(), v1::JOB_STATE_RUNNING);
}

TEST_F(LeaseTest, IsRegrantedOnlyTheMarginAfterItLapsed) {
  fleet.Join("x");
  fleet.PassBeating(absl::Seconds(3), fleet.Identity("x"));
  fleet.Beat(worker, {lease});
  fleet.PassBeating(absl::Seconds(16), fleet.Identity("x"));
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
  fleet.PassBeating(absl::Seconds(1), fleet.Identity("x"));
  EXPECT_EQ(fleet.Job(id).attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_PENDING);
  fleet.PassBeating(absl::Seconds(1), fleet.Identity("x"));
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(fleet.LeaseOf(id).worker().worker_id(), "x");
  EXPECT_EQ(fleet.Job(id).epoch(), 2);
}

// Both clocks off by a tenth in the worse direction.
TEST_F(LeaseTest, TheHolderStopsBeforeTheGranterGrantsAgainUnderClockSkew) {
  const Settings settings;
  EXPECT_LT((settings.lease - settings.lease_margin) / 0.9,
            (settings.lease + settings.regrant_margin) / 1.1);
}

TEST_F(LeaseTest, AFactAfterTheLapseIsRefusedEvenIfNoTickCameBetween) {
  fleet.Pass(absl::Seconds(14));
  fleet.Freeze(absl::Seconds(4));
  EXPECT_TRUE(IsFenced(fleet.Commit(lease, 1, "/c1").status()));
  EXPECT_EQ(fleet.core().counters().fenced, 1);
}

TEST_F(LeaseTest, EveryFactOfAnOldEpochIsRefused) {
  EXPECT_TRUE(fleet.Finish(lease, v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
  fleet.PassBeating(absl::Seconds(1), worker);
  ASSERT_EQ(fleet.Job(id).epoch(), 2) << "on the same worker and incarnation";
  v1::BeginCheckpointRequest begin;
  *begin.mutable_lease() = lease;
  v1::PushMetricsRequest metrics;
  *metrics.mutable_lease() = lease;
  metrics.add_points()->set_name("train/loss");
  EXPECT_TRUE(IsFenced(fleet.Start(lease)));
  EXPECT_TRUE(IsFenced(fleet.StatusOf(begin)));
  EXPECT_TRUE(IsFenced(fleet.StatusOf(metrics)));
  EXPECT_TRUE(IsFenced(fleet.Commit(lease, 1, "/c1").status()));
  EXPECT_TRUE(IsFenced(fleet.PushLogs(lease, 0, {"late"})));
  EXPECT_TRUE(IsFenced(fleet.Finish(lease)));
  EXPECT_EQ(fleet.core().counters().fenced, 6);
  EXPECT_TRUE(fleet.durable.logs.empty());
  EXPECT_TRUE(fleet.durable.metrics.empty());
  const v1::SessionResponse response = fleet.Beat(worker, {lease});
  ASSERT_EQ(response.stop_size(), 1);
  EXPECT_EQ(response.stop(0).epoch(), 1);
}

TEST_F(LeaseTest, AnotherWorkerCannotSpeakForTheHolder) {
  v1::LeaseIdentity forged = lease;
  *forged.mutable_worker() = fleet.Identity("x");
  EXPECT_TRUE(IsFenced(fleet.Finish(forged)));
  *forged.mutable_worker() = fleet.Identity("w", "b");
  EXPECT_TRUE(IsFenced(fleet.Finish(forged)));
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
}

// The coordinator stood still; heartbeats of that time wait unread.
TEST_F(LeaseTest, AFrozenCoordinatorRestartsNothing) {
  for (const absl::Duration pause : {absl::Seconds(2), absl::Seconds(40), absl::Minutes(10)}) {
    fleet.Freeze(pause);
    fleet.Pass(absl::Milliseconds(1));
    EXPECT_EQ(fleet.Workers().size(), 1u);
    fleet.Beat(worker, {lease});
    EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(fleet.Job(id).epoch(), 1);
  }
}

TEST_F(LeaseTest, AHealedWorkerGoesOnWithTheSameAttempt) {
  fleet.Apply(SessionClosed{worker});
  fleet.Pass(absl::Seconds(10));
  const v1::RegisterWorkerResponse response = fleet.Register(worker, {Scene::Cpu()}, {lease});
  EXPECT_EQ(response.keep_size(), 1);
  EXPECT_EQ(fleet.Beat(worker, {lease}).renewed_size(), 1);
  EXPECT_EQ(fleet.Job(id).attempts_size(), 1);
}

TEST_F(LeaseTest, ALostAssignmentIsRepeatedUntilItIsListed) {
  const std::string second = [&] {
    fleet.Join("x");
    return fleet.Submit().id();
  }();
  const v1::WorkerIdentity x = fleet.Identity("x");
  for (int i = 0; i < 3; ++i) {
    fleet.Pass(absl::Seconds(1));
    ASSERT_EQ(fleet.Beat(x).assignments_size(), 1);
  }
  EXPECT_EQ(fleet.Beat(x, {fleet.LeaseOf(second)}).assignments_size(), 0);
  EXPECT_EQ(fleet.Job(second).epoch(), 1);
}

TEST_F(LeaseTest, AnAssignmentIsNotRepeatedToAWorkerThatReportedTheStart) {
  fleet.Join("x");
  const std::string second = fleet.Submit().id();
  EXPECT_TRUE(fleet.Start(fleet.LeaseOf(second)).ok());
  EXPECT_EQ(fleet.Beat(fleet.Identity("x")).assignments_size(), 0);
}

TEST_F(LeaseTest, AWorkerThatNeverHearsItsAssignmentLosesIt) {
  fleet.Join("x");
  const std::string second = fleet.Submit().id();
  fleet.PassBeating(absl::Seconds(30), fleet.Identity("x"));
  EXPECT_EQ(fleet.Job(second).state(), v1::JOB_STATE_RUNNING)
      << "each repetition starts the lease anew, for one lease";
  fleet.PassBeating(absl::Seconds(1), fleet.Identity("x"));
  EXPECT_EQ(fleet.Job(second).attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
}

TEST_F(LeaseTest, AStartedAttemptThatIsNoLongerListedCountsAsCrashed) {
  fleet.PassBeating(absl::Seconds(5), worker, {});
  EXPECT_EQ(fleet.Job(id).epoch(), 1);
  fleet.Beat(worker, {lease});  // it was only late
  fleet.PassBeating(absl::Seconds(5), worker, {});
  EXPECT_EQ(fleet.Job(id).epoch(), 1);
  fleet.PassBeating(absl::Seconds(1), worker, {});
  EXPECT_EQ(fleet.Job(id).attempts(0).failure().cause(), v1::FAILURE_CAUSE_TRAINER_CRASHED);
}

TEST_F(LeaseTest, AnOvertakenHeartbeatChangesNothing) {
  Heartbeat old;
  *old.request.mutable_worker() = worker;
  old.request.set_sequence(0);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(fleet.Apply(old).signals.empty());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(LeaseTest, NoJobIsRunningWithoutALease) {
  fleet.Pass(absl::Seconds(60));
  EXPECT_TRUE(fleet.JobsIn(v1::JOB_STATE_RUNNING).empty());
  EXPECT_TRUE(fleet.Workers().empty());
}

}  // namespace
}  // namespace octavo::core
