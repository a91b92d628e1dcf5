#include "tests/unit/core/scene.h"

namespace octavo::core {
namespace {

TEST(Worker, IsToldTheTimesItMustKeep) {
  Scene fleet;
  const v1::RegisterWorkerResponse response = fleet.Register(fleet.Identity("w"));
  EXPECT_EQ(response.heartbeat_ms(), 1000);
  EXPECT_EQ(response.lease_ms(), 15000);
  EXPECT_EQ(response.lease_margin_ms(), 3000);
}

TEST(Worker, IsListedWithItsAttemptsAndForgottenWhenLost) {
  Scene fleet;
  fleet.Join("w");
  fleet.Submit();
  const std::vector<v1::Worker> workers = fleet.Workers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].state(), v1::WORKER_STATE_CONNECTED);
  EXPECT_EQ(workers[0].attempt_ids(0), "job-1.1");
  fleet.Pass(absl::Seconds(18));
  EXPECT_TRUE(fleet.Workers().empty());
}

TEST(Worker, ThatIsUnknownMustRegisterFirst) {
  Scene fleet;
  Heartbeat beat;
  *beat.request.mutable_worker() = fleet.Identity("w");
  EXPECT_EQ(fleet.StatusOf(beat).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Worker, AnotherIncarnationMeansThatTheFormerOneCrashed) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  fleet.Beat(fleet.Identity("w"), {lease});
  fleet.Apply(SessionClosed{fleet.Identity("w")});
  fleet.Register(fleet.Identity("w", "b"));
  EXPECT_EQ(fleet.Job(id).attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  EXPECT_TRUE(IsFenced(fleet.Start(lease)));
  fleet.PassBeating(absl::Seconds(2), fleet.Identity("w", "b"));
  EXPECT_EQ(fleet.Job(id).epoch(), 2);
}

TEST(Worker, TheSameIncarnationAgainMeansOnlyThatItsLineBroke) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  fleet.Beat(fleet.Identity("w"), {lease});
  EXPECT_EQ(fleet.Register(fleet.Identity("w"), {Scene::Cpu()}, {lease}).keep_size(), 1);
  EXPECT_EQ(fleet.Job(id).attempts_size(), 1) << "reconnecting places nothing twice";
  EXPECT_EQ(fleet.core().counters().attempts_started, 1);
}

// Two agents were given one id, or a late message of a dead one arrives.
TEST(Worker, AnotherIncarnationIsRefusedWhileTheFormerOneIsHeard) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  RegisterWorker other;
  *other.request.mutable_worker() = fleet.Identity("w", "b");
  EXPECT_EQ(fleet.StatusOf(other).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fleet.Beat(fleet.Identity("w"), {fleet.LeaseOf(id)}).renewed_size(), 1);
  fleet.Pass(absl::Seconds(5));
  EXPECT_TRUE(fleet.StatusOf(other).ok());
}

TEST(Worker, AReplacedIncarnationCannotComeBack) {
  Scene fleet;
  fleet.Join("w");
  fleet.Apply(SessionClosed{fleet.Identity("w")});
  fleet.Register(fleet.Identity("w", "b"));
  RegisterWorker late;
  *late.request.mutable_worker() = fleet.Identity("w", "a");
  EXPECT_EQ(fleet.StatusOf(late).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Worker, WhatItRunsWithoutALeaseIsNotKept) {
  Scene fleet;
  v1::LeaseIdentity unknown;
  unknown.set_job_id("job-x");
  unknown.set_epoch(3);
  EXPECT_EQ(fleet.Register(fleet.Identity("w"), {Scene::Cpu()}, {unknown}).keep_size(), 0);
  EXPECT_EQ(fleet.Beat(fleet.Identity("w"), {unknown}).stop_size(), 1);
}

TEST(Worker, TheFleetHasALimit) {
  Settings settings;
  settings.max_workers = 1;
  Scene fleet(settings);
  fleet.Join("w");
  RegisterWorker second;
  *second.request.mutable_worker() = fleet.Identity("x");
  EXPECT_EQ(fleet.StatusOf(second).code(), absl::StatusCode::kResourceExhausted);
  fleet.Apply(SessionClosed{fleet.Identity("w")});
  fleet.Register(fleet.Identity("w", "b"));  // replaces, does not add
}

TEST(Worker, EachOfItsDevicesTakesOneJob) {
  Scene fleet;
  fleet.Join("w", {Scene::Cpu(8 * kGibibyte, 0), Scene::Cpu(8 * kGibibyte, 1)});
  EXPECT_EQ(fleet.Submit().attempts(0).device_index(), 0);
  EXPECT_EQ(fleet.Submit().attempts(0).device_index(), 1);
  EXPECT_EQ(fleet.Submit().pending_reason(), "waits for a free cpu device of 1.0 GiB");
  EXPECT_EQ(fleet.Submit({.memory_bytes = 9 * kGibibyte}).pending_reason(),
            "needs 9.0 GiB on a cpu device; the largest has 8.0 GiB");
}

TEST(Worker, WhatAWaitingJobIsToldFollowsTheFleet) {
  Scene fleet;
  const std::string id = fleet.Submit().id();
  fleet.Register(fleet.Identity("w"), {Scene::Cpu(kGibibyte / 2)});
  EXPECT_EQ(fleet.Job(id).pending_reason(),
            "needs 1.0 GiB on a cpu device; the largest has 0.5 GiB");
  fleet.Pass(absl::Seconds(20));
  EXPECT_EQ(fleet.Job(id).pending_reason(), "no registered worker has a cpu device");
}

TEST(Worker, AWaitingJobOfHigherPriorityGetsTheDeviceThatFallsFree) {
  Scene fleet;
  fleet.Join("w");
  const std::string running = fleet.Submit().id();
  const std::string low = fleet.Submit().id();
  const std::string high = fleet.Submit({.priority = 1}).id();
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(running)).ok());
  EXPECT_EQ(fleet.Job(high).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(fleet.Job(low).state(), v1::JOB_STATE_PENDING);
}

// The queue is asked in pieces of 256 jobs, so beyond them only the order of the queue itself tells
// which job comes first.
TEST(Worker, PriorityHoldsInAQueueOfMoreJobsThanAreAskedAtOnce) {
  Scene fleet;
  fleet.Join("w");
  std::string running = fleet.Submit().id();
  std::vector<std::string> low;
  for (int i = 0; i < 300; ++i) low.push_back(fleet.Submit({.priority = -1}).id());
  const std::string middle = fleet.Submit().id();
  const std::string high = fleet.Submit({.priority = 1}).id();
  for (const std::string& next : {high, middle, low[0], low[1]}) {
    EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(running)).ok());
    EXPECT_EQ(fleet.Job(next).state(), v1::JOB_STATE_RUNNING) << next;
    running = next;
  }
}

// A stream of small jobs, each placed as the one before ends, must not hold up the large one.
TEST(Worker, SmallJobsDoNotStarveALargeOne) {
  Scene fleet;
  fleet.Join("w");
  std::string small = fleet.Submit().id();
  const std::string large = fleet.Submit({.memory_bytes = 8 * kGibibyte}).id();
  const std::string later = fleet.Submit().id();
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(small)).ok());
  EXPECT_EQ(fleet.Job(large).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(fleet.Job(later).state(), v1::JOB_STATE_PENDING);
}

TEST(Worker, ThatBringsALargerDeviceLetsAJobThatFittedNowhereRun) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit({.memory_bytes = 9 * kGibibyte}).id();
  fleet.Join("x", {Scene::Cpu(16 * kGibibyte)});
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_RUNNING);
}

}  // namespace
}  // namespace octavo::core
