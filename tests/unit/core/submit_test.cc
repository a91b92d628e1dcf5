#include "tests/unit/core/scene.h"

namespace octavo::core {
namespace {

using ::testing::HasSubstr;

TEST(Submit, AJobWaitsAndSaysWhyWhenThereIsNoWorker) {
  Scene fleet;
  const v1::Job job = fleet.Submit();
  EXPECT_EQ(job.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job.pending_reason(), "no registered worker has a cpu device");
  EXPECT_EQ(job.version(), 1);
}

TEST(Submit, TheAnswerIsWhatWasWritten) {
  Scene fleet;
  const v1::Job job = fleet.Submit();
  v1::Job answered = std::get<v1::Job>(*fleet.answer);
  EXPECT_NE(answered.pending_reason(), "");
  answered.clear_pending_reason();  // follows from the fleet and is not stored
  EXPECT_EQ(fleet.durable.jobs.at(job.id())->job.SerializeAsString(), answered.SerializeAsString());
  EXPECT_EQ(fleet.durable.requests.size(), 1u);
}

TEST(Submit, ARepetitionAnswersWithTheSameJob) {
  Scene fleet;
  const v1::Job first = fleet.Submit({.request_id = "r"});
  const v1::Job second = fleet.Submit({.request_id = "r"});
  EXPECT_EQ(second.id(), first.id());
  EXPECT_EQ(fleet.durable.jobs.size(), 1u);
  EXPECT_EQ(fleet.core().counters().submits, 1);
  EXPECT_EQ(fleet.core().counters().repeated_submits, 1);
}

// The coordinator died between the write and the answer, and the client asks again.
TEST(Submit, ARepetitionAfterARestartAnswersWithTheSameJob) {
  Scene fleet;
  const v1::Job first = fleet.Submit({.request_id = "r"});
  fleet.Restart();
  EXPECT_EQ(fleet.Submit({.request_id = "r"}).id(), first.id());
}

TEST(Submit, TheSameRequestIdWithAnotherSpecIsRefused) {
  Scene fleet;
  fleet.Submit({.request_id = "r", .priority = 1});
  const absl::Status status = fleet.TrySubmit({.request_id = "r", .priority = 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("job-1"));
}

TEST(Submit, TheQueueOfPendingJobsHasALimitAndARepetitionIsStillAnswered) {
  Settings settings;
  settings.max_pending_jobs = 2;
  Scene fleet(settings);
  fleet.Submit({.request_id = "r"});
  fleet.Submit();
  EXPECT_EQ(fleet.TrySubmit().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(fleet.TrySubmit({.request_id = "r"}).ok());
  fleet.Join("w");
  EXPECT_TRUE(fleet.TrySubmit().ok());
}

TEST(Submit, JobsAreListedNewestFirstInPages) {
  Scene fleet;
  for (int i = 0; i < 5; ++i) fleet.Submit();
  const Jobs& jobs = fleet.core().jobs();
  const auto first = jobs.List(0, 2, {});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0]->job.id(), "job-5");
  const auto second = jobs.List(first[1]->order, 10, {});
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0]->job.id(), "job-3");
  EXPECT_TRUE(jobs.List(0, 10, {v1::JOB_STATE_RUNNING}).empty());
}

TEST(Cancel, APendingJobIsCancelledAtOnce) {
  Scene fleet;
  const std::string id = fleet.Submit().id();
  EXPECT_TRUE(fleet.StatusOf(CancelJob{id}).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(fleet.Job(id).pending_reason(), "");
  EXPECT_TRUE(fleet.Join("w").assignments().empty());
}

TEST(Cancel, IsIdempotentAndKnowsWhatItCannotCancel) {
  Scene fleet;
  fleet.Join("w");
  const std::string cancelled = fleet.Submit({.device_kind = "gpu"}).id();
  EXPECT_TRUE(fleet.StatusOf(CancelJob{cancelled}).ok());
  const int64_t version = fleet.Job(cancelled).version();
  EXPECT_TRUE(fleet.StatusOf(CancelJob{cancelled}).ok());
  EXPECT_EQ(fleet.Job(cancelled).version(), version);

  const std::string done = fleet.Submit().id();
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(done)).ok());
  EXPECT_EQ(fleet.StatusOf(CancelJob{done}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fleet.StatusOf(CancelJob{"job-x"}).code(), absl::StatusCode::kNotFound);
}

TEST(Cancel, ARunningJobIsToldToStopWithEveryHeartbeatUntilItEnds) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  fleet.Beat(fleet.Identity("w"), {lease});
  EXPECT_EQ(Scene::SentTo(fleet.Identity("w"), fleet.Apply(CancelJob{id})).stop_size(), 1);
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLING);
  for (int i = 0; i < 3; ++i) {
    const v1::SessionResponse response = fleet.Beat(fleet.Identity("w"), {lease});
    EXPECT_EQ(response.stop_size(), 1);
    EXPECT_EQ(response.renewed_size(), 0);
  }
  EXPECT_TRUE(fleet.Finish(lease, v1::FAILURE_CAUSE_CANCELLED).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(fleet.Submit().state(), v1::JOB_STATE_RUNNING) << "the device fell free";
}

// Its assignment may still be under way.
TEST(Cancel, AnAttemptThatWasNeverListedIsToldToStopToo) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  fleet.Apply(CancelJob{id});
  const v1::SessionResponse response = fleet.Beat(fleet.Identity("w"));
  EXPECT_EQ(response.stop_size(), 1);
  EXPECT_EQ(response.assignments_size(), 0);
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id), v1::FAILURE_CAUSE_CANCELLED).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED);
}

TEST(Cancel, ATrainerThatDoesNotStopIsFencedWhenItsLeaseLapses) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  const v1::LeaseIdentity lease = fleet.LeaseOf(id);
  fleet.Apply(CancelJob{id});
  fleet.PassBeating(absl::Seconds(16), fleet.Identity("w"), {lease});
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLING);
  fleet.PassBeating(absl::Seconds(1), fleet.Identity("w"), {lease});
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(IsFenced(fleet.Start(lease)));
}

TEST(Cancel, WinsOverASuccessThatComesLater) {
  Scene fleet;
  fleet.Join("w");
  const std::string id = fleet.Submit().id();
  fleet.Apply(CancelJob{id});
  EXPECT_TRUE(fleet.Finish(fleet.LeaseOf(id)).ok());
  EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED);
}

// At every step between submit and end: the job ends CANCELLED and the device falls free.
TEST(Cancel, AtAnyStepGivesTheDeviceBack) {
  for (int step = 0; step < 6; ++step) {
    Scene fleet;
    const v1::WorkerIdentity worker = fleet.Identity("w");
    const std::string id = fleet.Submit().id();
    std::vector<v1::LeaseIdentity> running;
    if (step >= 1) fleet.Register(worker);
    if (step >= 2) fleet.Beat(worker);
    if (step >= 3) running = {fleet.LeaseOf(id)};
    EXPECT_TRUE(step < 3 || fleet.Start(running[0]).ok());
    if (step >= 4) fleet.Beat(worker, running);
    EXPECT_TRUE(step < 5 || fleet.Finish(running[0], v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
    if (step == 5) running.clear();
    EXPECT_TRUE(fleet.StatusOf(CancelJob{id}).ok());
    if (step < 2) fleet.Join("w");
    fleet.PassBeating(absl::Seconds(18), worker, running);
    EXPECT_EQ(fleet.Job(id).state(), v1::JOB_STATE_CANCELLED) << "step " << step;
    EXPECT_EQ(fleet.Submit().state(), v1::JOB_STATE_RUNNING) << "step " << step;
  }
}

}  // namespace
}  // namespace octavo::core
