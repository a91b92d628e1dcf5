// Killed processes: the job succeeds all the same, with the same weights.
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/time/clock.h"
#include "base/split_mix.h"
#include "tests/endtoend/cluster.h"

namespace octavo::endtoend {
namespace {

constexpr int64_t kSteps = 240;
// More than a machine takes in the outage; a trainer that is done waits for its last commit.
constexpr int64_t kStepsOfOutage = 1500;

v1::JobSpec LongJob(const Cluster& cluster) {
  v1::JobSpec spec = cluster.TinyJob(kSteps);
  spec.mutable_stages(0)->mutable_checkpoint()->set_every_steps(15);
  spec.mutable_stages(0)->mutable_checkpoint()->set_export_format("none");
  return spec;
}

// The weights of an undisturbed run and its losses; made once for all tests of this process.
struct Undisturbed {
  std::string weights_sha256;
  std::map<int64_t, double> losses;
};
const Undisturbed& UndisturbedRun() {
  static const Undisturbed run = [] {
    Cluster cluster;
    cluster.StartCoordinator();
    cluster.StartWorker();
    const std::string id = cluster.Submit(LongJob(cluster));
    const v1::Job job = cluster.AwaitEnd(id);
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.ShortDebugString();
    EXPECT_EQ(job.attempts_size(), 1);
    return Undisturbed{job.report().weights_sha256(), cluster.Losses(id)};
  }();
  return run;
}

// Steps at which to strike, from the seed.
class Moments {
 public:
  explicit Moments(uint64_t seed) : state_(seed) {}
  int64_t Next(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(NextSplitMix(&state_) % static_cast<uint64_t>(high - low));
  }

 private:
  uint64_t state_;
};

class Killed : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    UndisturbedRun();
    cluster_.StartCoordinator();
    cluster_.StartWorker();
    id_ = cluster_.Submit(LongJob(cluster_));
  }
  // Two strikes, one in each half of the run.
  void StrikeTwice(const std::function<void()>& strike) {
    Moments moments(GetParam());
    for (const int64_t low : {int64_t{5}, kSteps / 2}) {
      const int64_t step = moments.Next(low, low + kSteps / 2 - 10);
      cluster_.AwaitStep(id_, step);
      RecordProperty("strike_after_step", static_cast<int>(step));
      strike();
    }
  }
  v1::Job EndsAsIfUndisturbed() {
    const v1::Job job = cluster_.AwaitEnd(id_);
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.ShortDebugString();
    EXPECT_EQ(job.report().weights_sha256(), UndisturbedRun().weights_sha256);
    EXPECT_EQ(job.report().steps(), kSteps);
    EXPECT_EQ(cluster_.Losses(id_), UndisturbedRun().losses);
    EXPECT_LE(cluster_.Trainers().size(), 1u);
    return job;
  }

  Cluster cluster_;
  std::string id_;
};

TEST_P(Killed, ATrainerIsStartedAgainFromItsCheckpoint) {
  StrikeTwice([this] {
    for (const int trainer : cluster_.Trainers()) kill(trainer, SIGKILL);
  });
  const v1::Job job = EndsAsIfUndisturbed();
  ASSERT_GE(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).failure().cause(), v1::FAILURE_CAUSE_TRAINER_CRASHED);
}

TEST_P(Killed, AWorkerTakesItsTrainerAlongAndAnotherLifeContinues) {
  StrikeTwice([this] {
    cluster_.worker().Kill();
    EXPECT_TRUE(Eventually(absl::Seconds(5), [this] { return cluster_.Trainers().empty(); }))
        << "the trainer outlived its agent";
    cluster_.StartWorker();
  });
  const v1::Job job = EndsAsIfUndisturbed();
  ASSERT_GE(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
}

TEST_P(Killed, AWorkerThatDoesNotComeBackIsReplacedByAnother) {
  cluster_.AwaitStep(id_, Moments(GetParam()).Next(20, kSteps - 20));
  cluster_.StartWorker({.id = "other"});
  cluster_.worker().Kill();
  const v1::Job job = EndsAsIfUndisturbed();
  EXPECT_EQ(job.attempts(job.attempts_size() - 1).worker_id(), "other");
}

TEST_P(Killed, ACoordinatorForgetsNothingAndDisturbsNoTrainer) {
  StrikeTwice([this] {
    cluster_.coordinator().Kill();
    cluster_.StartCoordinator();
  });
  const v1::Job job = EndsAsIfUndisturbed();
  EXPECT_EQ(job.attempts_size(), 1) << "the attempt outlives the coordinator";
}

// Away for two leases: nothing is restarted, no step is repeated, and training went on meanwhile.
TEST(Outage, OfTheCoordinatorCostsARunningJobNothing) {
  constexpr absl::Duration kAway = absl::Seconds(8);
  Cluster cluster;
  cluster.StartCoordinator();
  cluster.StartWorker();
  v1::JobSpec spec = cluster.TinyJob(kStepsOfOutage);
  spec.mutable_stages(0)->mutable_checkpoint()->set_every_steps(15);
  spec.mutable_stages(0)->mutable_checkpoint()->set_export_format("none");
  const std::string id = cluster.Submit(spec);
  cluster.AwaitStep(id, 40);
  cluster.coordinator().Kill();
  const absl::Time killed = absl::Now();
  EXPECT_TRUE(Eventually(2 * kAway, [&] { return absl::Now() > killed + kAway; }));
  const absl::Time started = absl::Now();
  cluster.StartCoordinator();
  const v1::Job job = cluster.AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.ShortDebugString();
  EXPECT_EQ(job.attempts_size(), 1);
  int64_t next = 1;
  int64_t meanwhile = 0;
  for (const v1::MetricPoint& point : cluster.LossPoints(id)) {
    EXPECT_EQ(point.step(), next++) << "every step once";
    const absl::Time taken = absl::FromUnixMillis(point.time_unix_ms());
    if (taken > killed + absl::Seconds(1) && taken < started) ++meanwhile;
  }
  EXPECT_EQ(next, kStepsOfOutage + 1);
  EXPECT_GT(meanwhile, 20) << "steps while nobody listened";
}

// The agent stands still beyond its lease, so that another worker gets the job. When it wakes up,
// it still holds a trainer: nothing of that may reach the job any more.
TEST_P(Killed, AWorkerThatSleepsThroughItsLeaseIsFenced) {
  cluster_.AwaitStep(id_, Moments(GetParam()).Next(20, kSteps / 2));
  cluster_.StartWorker({.id = "other"});
  cluster_.worker().Signal(SIGSTOP);
  cluster_.Await(id_,
                 [](const v1::Job& job) { return job.epoch() > 1 || IsTerminal(job.state()); });
  cluster_.worker().Signal(SIGCONT);
  const v1::Job job = EndsAsIfUndisturbed();
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  EXPECT_EQ(job.checkpoint().epoch(), 2);
  EXPECT_TRUE(Eventually(absl::Seconds(10), [this] { return cluster_.Trainers().empty(); }));
}

TEST_P(Killed, ACoordinatorThatSleepsForLessThanALeaseDisturbsNothing) {
  cluster_.AwaitStep(id_, Moments(GetParam()).Next(20, kSteps / 2));
  cluster_.coordinator().Signal(SIGSTOP);
  const absl::Time asleep_until = absl::Now() + absl::Seconds(1);  // ten heartbeats
  EXPECT_TRUE(Eventually(absl::Seconds(5), [&] { return absl::Now() > asleep_until; }));
  cluster_.coordinator().Signal(SIGCONT);
  EXPECT_EQ(EndsAsIfUndisturbed().attempts_size(), 1);
}

TEST_P(Killed, EverythingAtOnceStillEndsWell) {
  StrikeTwice([this] {
    cluster_.coordinator().Kill();
    cluster_.worker().Kill();
    cluster_.StartCoordinator();
    cluster_.StartWorker();
  });
  EndsAsIfUndisturbed();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Killed, ::testing::Values(1, 2));

}  // namespace
}  // namespace octavo::endtoend
