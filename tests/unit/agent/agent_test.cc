#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/unit/agent/fake_coordinator.h"
#include "tests/unit/agent/support.h"

namespace octavo::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SystemClock kClock;

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() : coordinator_(folder_.path() + "/coordinator.sock") {}

  void StartAgent() {
    Config config;
    config.server = coordinator_.address();
    config.worker_id = "worker-1";
    config.trainer = FakeTrainer();
    config.stop_grace = absl::Milliseconds(300);
    config.out_of_contact_limit = out_of_contact_limit_;
    config.kill_signal = kill_signal_;
    config.death_time = absl::Milliseconds(200);
    std::vector<v1::Device> devices;
    for (int index = 0; index < device_count_; ++index) {
      v1::Device& device = devices.emplace_back();
      device.set_kind("cpu");
      device.set_index(index);
      device.set_memory_bytes(1 << 20);
    }
    agent_ = std::make_unique<Agent>(Agent::Options{.config = config,
                                                    .socket_folder = folder_.path(),
                                                    .devices = devices,
                                                    .version = "1",
                                                    .clock = &kClock});
  }
  // Lets the agent work until the condition holds.
  bool Comes(const std::function<bool()>& condition) {
    return Eventually([&] {
      agent_->Tick();
      return condition();
    });
  }
  // Assigns a job whose trainer waits; its process number.
  int StartWaitingJob(const std::string& behaviour = "wait") {
    coordinator_.Assign(MakeAssignment(behaviour));
    int process = 0;
    EXPECT_TRUE(Comes([&] {
      const std::vector<std::string> lines = coordinator_.lines();
      return !lines.empty() && absl::SimpleAtoi(absl::StripPrefix(lines[0], "process "), &process);
    }));
    return process;
  }

  TemporaryFolder folder_;
  FakeCoordinator coordinator_;
  absl::Duration out_of_contact_limit_;  // none
  int device_count_ = 1;
  int kill_signal_ = SIGKILL;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, RegistersItsDevicesAndRunsWhatIsAssigned) {
  StartAgent();
  coordinator_.Assign(MakeAssignment("succeed"));
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_FALSE(coordinator_.ends()[0].has_failure());
  EXPECT_EQ(coordinator_.last_registration().devices_size(), 1);
  EXPECT_TRUE(Comes([&] { return coordinator_.running().empty() && agent_->running() == 0; }));
}

TEST_F(AgentTest, AnAssignmentThatComesAgainAfterItsEndIsNotRunAgain) {
  StartAgent();
  coordinator_.Assign(MakeAssignment("succeed"));
  ASSERT_TRUE(Comes([&] { return agent_->running() == 0 && coordinator_.ends().size() == 1; }));
  coordinator_.Assign(MakeAssignment("succeed"));  // the same epoch, late
  const int heartbeats = coordinator_.heartbeats();
  ASSERT_TRUE(Comes([&] { return coordinator_.heartbeats() > heartbeats + 3; }));
  EXPECT_EQ(coordinator_.ends().size(), 1u);
  coordinator_.Assign(MakeAssignment("succeed", "job-a", 2));
  EXPECT_TRUE(Comes([&] { return coordinator_.ends().size() == 2; })) << "a new epoch is news";
}

TEST_F(AgentTest, ACancelledJobIsStoppedAndReported) {
  StartAgent();
  const int process = StartWaitingJob();
  coordinator_.Cancel(MakeAssignment("wait").lease());
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_CANCELLED);
  EXPECT_FALSE(IsAlive(process));
}

// Ten leases long. The coordinator finds the same attempt, and had it ended there would be a
// report.
TEST_F(AgentTest, ALongAbsenceOfTheCoordinatorDoesNotDisturbTheTrainer) {
  StartAgent();
  const int process = StartWaitingJob();
  coordinator_.Stop();
  const absl::Time until = absl::Now() + absl::Seconds(2);
  ASSERT_TRUE(Comes([&] { return absl::Now() > until; }));
  EXPECT_TRUE(IsAlive(process));
  coordinator_.Start();
  ASSERT_TRUE(Comes([&] { return coordinator_.registrations() == 2; }));
  ASSERT_TRUE(Comes([&] { return coordinator_.running().size() == 1; }));
  EXPECT_TRUE(IsAlive(process));
  EXPECT_EQ(coordinator_.last_registration().running_size(), 1);
  EXPECT_THAT(coordinator_.ends(), IsEmpty());
}

TEST_F(AgentTest, ATrainerIsStoppedGentlyBeyondTheOutOfContactLimit) {
  out_of_contact_limit_ = absl::Milliseconds(400);
  StartAgent();
  const int process = StartWaitingJob();
  const int heartbeats = coordinator_.heartbeats();
  ASSERT_TRUE(Comes([&] { return coordinator_.heartbeats() > heartbeats + 12; }));
  EXPECT_TRUE(IsAlive(process)) << "every answered heartbeat is contact";
  coordinator_.Stop();
  ASSERT_TRUE(Comes([&] { return !IsAlive(process); }));
  coordinator_.Start();
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  EXPECT_THAT(coordinator_.ends()[0].failure().message(), HasSubstr("--out-of-contact-limit"));
}

TEST_F(AgentTest, AShortAbsenceOfTheCoordinatorDoesNotDisturbTheTrainer) {
  StartAgent();
  const int process = StartWaitingJob();
  coordinator_.Stop();
  coordinator_.Start();
  ASSERT_TRUE(Comes([&] { return coordinator_.registrations() == 2; }));
  ASSERT_TRUE(Comes([&] { return coordinator_.running().size() == 1; }));
  EXPECT_TRUE(IsAlive(process));
  EXPECT_EQ(coordinator_.last_registration().running_size(), 1);
  EXPECT_THAT(coordinator_.ends(), IsEmpty());
}

TEST_F(AgentTest, WhatTheCoordinatorDoesNotKeepIsKilledInSilence) {
  StartAgent();
  const int process = StartWaitingJob();
  coordinator_.KeepOnRegistration(false);
  coordinator_.Stop();
  coordinator_.Start();
  ASSERT_TRUE(Comes([&] { return !IsAlive(process) && agent_->running() == 0; }));
  EXPECT_THAT(coordinator_.ends(), IsEmpty());
}

TEST_F(AgentTest, AResultThatCouldNotBeReportedIsReportedLater) {
  StartAgent();
  const int process = StartWaitingJob();
  coordinator_.Stop();
  kill(process, SIGKILL);
  ASSERT_TRUE(Comes([&] { return !IsAlive(process); }));
  EXPECT_EQ(agent_->running(), 1u) << "its end is not reported yet";
  coordinator_.Start();
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_TRAINER_CRASHED);
}

TEST_F(AgentTest, AShutdownEndsTheTrainerAndSaysThatTheWorkerIsLeaving) {
  StartAgent();
  const int process = StartWaitingJob();
  agent_->Shutdown();
  EXPECT_FALSE(IsAlive(process));
  ASSERT_EQ(coordinator_.ends().size(), 1u);
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  EXPECT_EQ(coordinator_.ends()[0].failure().message(), "the worker is shutting down");
}

TEST_F(AgentTest, AnAssignmentForABusyDeviceKillsWhoLostItAndIsRun) {
  StartAgent();
  const int process = StartWaitingJob();
  coordinator_.Assign(MakeAssignment("succeed", "job-b"));
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_FALSE(IsAlive(process));
  EXPECT_EQ(coordinator_.ends()[0].lease().job_id(), "job-b");
  EXPECT_FALSE(coordinator_.ends()[0].has_failure());
}

TEST_F(AgentTest, AStopOfAnAttemptThatNeverCameIsAnsweredAndItDoesNotBeginLater) {
  StartAgent();
  coordinator_.Cancel(MakeAssignment("wait").lease());
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_CANCELLED);
  coordinator_.Assign(MakeAssignment("wait"));
  const int heartbeats = coordinator_.heartbeats();
  ASSERT_TRUE(Comes([&] { return coordinator_.heartbeats() > heartbeats + 3; }));
  EXPECT_THAT(coordinator_.lines(), IsEmpty());
  EXPECT_EQ(coordinator_.ends().size(), 1u);
}

// A trainer in the hands of a driver or a file system: SIGKILL does not reach it.
TEST_F(AgentTest, ATrainerThatDoesNotDieTakesItsDeviceOutOfServiceUntilItIsGone) {
  kill_signal_ = SIGUSR1;
  device_count_ = 2;
  StartAgent();
  const int process = StartWaitingJob("undying");
  EXPECT_EQ(coordinator_.last_registration().devices_size(), 2);
  coordinator_.Assign(MakeAssignment("succeed", "job-b"));
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_EQ(coordinator_.ends()[0].lease().job_id(), "job-b") << "the other one is fenced";
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  EXPECT_THAT(coordinator_.ends()[0].failure().message(), HasSubstr("device cpu 0 of worker"));
  ASSERT_TRUE(Comes([&] { return coordinator_.last_registration().devices_size() == 1; }));
  EXPECT_EQ(coordinator_.last_registration().devices(0).index(), 1);
  EXPECT_TRUE(IsAlive(process));
  kill(process, SIGKILL);
  EXPECT_TRUE(Comes([&] { return coordinator_.last_registration().devices_size() == 2; }));
  coordinator_.Assign(MakeAssignment("succeed", "job-c"));
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 2; }));
  EXPECT_FALSE(coordinator_.ends()[1].has_failure());
}

TEST_F(AgentTest, AWorkerWithoutADeviceStaysAwayUntilItHasOne) {
  kill_signal_ = SIGUSR1;
  StartAgent();
  const int process = StartWaitingJob("undying");
  coordinator_.Cancel(MakeAssignment("undying").lease());
  ASSERT_TRUE(Comes([&] { return coordinator_.ends().size() == 1; }));
  EXPECT_EQ(coordinator_.ends()[0].failure().cause(), v1::FAILURE_CAUSE_CANCELLED);
  EXPECT_THAT(coordinator_.ends()[0].failure().message(), HasSubstr("does not end"));
  const absl::Time until = absl::Now() + absl::Milliseconds(500);
  ASSERT_TRUE(Comes([&] { return absl::Now() > until; }));
  EXPECT_EQ(coordinator_.registrations(), 1);
  EXPECT_TRUE(agent_->status().ok());
  kill(process, SIGKILL);
  EXPECT_TRUE(Comes([&] { return coordinator_.registrations() == 2; }));
}

TEST_F(AgentTest, ARejectionForGoodEndsTheAgent) {
  coordinator_.RejectRegistrations();
  StartAgent();
  ASSERT_TRUE(Comes([&] { return !agent_->status().ok(); }));
  EXPECT_THAT(std::string(agent_->status().message()), HasSubstr("was replaced"));
}

TEST_F(AgentTest, ABrokenInspectionIsAnsweredWithAWarning) {
  StartAgent();
  v1::Inspect inspect;
  inspect.set_inspection_id("i-1");
  coordinator_.Inspect(inspect);  // the fake trainer does not know --inspect
  ASSERT_TRUE(Comes([&] { return coordinator_.inspections().size() == 1; }));
  EXPECT_EQ(coordinator_.inspections()[0].inspection_id(), "i-1");
  EXPECT_EQ(coordinator_.inspections()[0].warnings_size(), 1);
  EXPECT_FALSE(coordinator_.inspections()[0].has_plan());
}

}  // namespace
}  // namespace octavo::agent
