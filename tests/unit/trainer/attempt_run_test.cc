// The trainer's loop over an engine that only counts.
#include "worker/trainer/attempt_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "proto/support/job_spec.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/trainer/fake_agent.h"

namespace octavo::trainer {
namespace {

namespace fs = std::filesystem;
using End = AttemptRun::End;  // Run is a member of testing::Test
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What the counting engine is to do; shared between the test and its engines.
struct Script {
  int64_t start_step = 0;
  absl::Status prepare;
  absl::Status save;
  absl::Status step;  // of step `failing_step`
  int64_t failing_step = 0;
  bool out_of_memory = false;   // throws std::bad_alloc instead
  bool throws = false;          // throws another exception, in Prepare or in a step
  StopRequest* stop = nullptr;  // set in step `stop_step`, now
  int64_t stop_step = 0;
  const Clock* now = nullptr;
  std::function<void(int64_t step)> in_step;
  std::function<void()> in_save;
};

absl::Status MakeFolderWithFile(const std::string& folder, const std::string& content) {
  RETURN_IF_ERROR(MakeFolders(folder));
  return WriteFileAtomically(folder + "/manifest.json", content);
}

class CountingEngine final : public engine::Engine {
 public:
  CountingEngine(const Script& script, int64_t steps)
      : script_(script), steps_(steps), completed_(script.start_step) {}

  int64_t completed_steps() const override { return completed_; }
  bool done() const override { return completed_ >= steps_; }
  absl::StatusOr<engine::StepReport> Step() override {
    if (script_.out_of_memory) throw std::bad_alloc();
    engine::StepReport report;
    report.step = ++completed_;
    if (report.step == script_.failing_step) return script_.step;
    if (script_.throws) throw std::runtime_error("type must be number, but is string");
    if (report.step == script_.stop_step) {
      script_.stop->Set(absl::ToInt64Nanoseconds(script_.now->Monotonic()));
    }
    if (script_.in_step) script_.in_step(report.step);
    report.loss = 5.0 - 0.1 * static_cast<double>(report.step);
    report.step_tokens = 100;
    report.total_tokens = 100 * report.step;
    report.seconds = report.step == 2 ? 10 : 1;  // one slow step
    report.peak_memory_bytes = 7;
    return report;
  }
  absl::StatusOr<std::string> SaveCheckpoint(const std::string& folder) override {
    if (!script_.save.ok()) return script_.save;
    if (script_.in_save) script_.in_save();
    if (fs::exists(folder)) return absl::AlreadyExistsError(folder);
    const std::string manifest = "step " + std::to_string(completed_);
    RETURN_IF_ERROR(MakeFolderWithFile(folder, manifest));
    return Sha256Of(manifest);
  }
  absl::StatusOr<engine::FinalReport> Finish() override {
    engine::FinalReport report;
    report.weights_sha256 = "weights after " + std::to_string(completed_);
    report.training_gemms.fp8 = 21;
    return report;
  }
  absl::Status Export(const std::string& folder) override {
    if (fs::exists(folder)) return absl::AlreadyExistsError(folder);
    return MakeFolderWithFile(folder, "export of epoch");
  }

 private:
  const Script script_;
  const int64_t steps_;
  int64_t completed_;
};

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    agent_ = std::make_unique<FakeAgent>(folder_ + "/agent.sock");
    v1::JobSpec* spec = agent_->assignment.mutable_spec();
    spec->set_name("a-job");
    spec->set_output_folder(folder_ + "/out");
    v1::Stage* stage = spec->add_stages();
    stage->set_kind("cpt");
    stage->set_steps(4);
    stage->mutable_model()->set_folder("/model");
    stage->mutable_data()->add_files("/data.txt");
    stage->mutable_data()->set_sequence_length(8);
    stage->mutable_optimizer()->set_learning_rate(1e-3);
    stage->mutable_checkpoint()->set_every_steps(2);
    FillDefaults(spec);
    agent_->assignment.mutable_lease()->set_job_id("job-a");
    agent_->assignment.mutable_lease()->set_epoch(3);
  }
  End Execute() {
    script_.stop = &stop_;
    script_.now = clock_;
    AgentLink link(agent_->address(), absl::Seconds(20));
    octavo::trainer::AttemptRun run(
        *link.Begin(), &link,
        {.memory_bytes = 1 << 20,
         .threads = 1,
         .prepare = [this](const engine::RunSpec& spec, const std::string&,
                           kernels::Backend*) -> absl::StatusOr<std::unique_ptr<engine::Engine>> {
           if (!script_.prepare.ok()) return script_.prepare;
           if (prepare_throws_) throw std::runtime_error("[json.exception] cannot use at()");
           return std::make_unique<CountingEngine>(script_, spec.steps);
         },
         .clock = clock_,
         .stop = &stop_,
         .stop_grace = stop_grace_,
         .most_waiting_steps = most_waiting_steps_,
         .out = &out_});
    return run.Execute();
  }
  std::string Root() const { return folder_ + "/out/job-a"; }
  std::string CheckpointFolder(int64_t step, int64_t epoch) const {
    return Root() + "/checkpoints/step-0000000" + std::to_string(step) + ".epoch-" +
           std::to_string(epoch);
  }
  void ResumeFrom(int64_t step, int64_t epoch) {
    v1::Checkpoint* checkpoint = agent_->assignment.mutable_resume_from();
    checkpoint->set_step(step);
    checkpoint->set_epoch(epoch);
    checkpoint->set_folder(CheckpointFolder(step, epoch));
    checkpoint->set_manifest_sha256(Sha256Of("manifest"));
    ASSERT_TRUE(MakeFolderWithFile(checkpoint->folder(), "manifest").ok());
    script_.start_step = step;
  }
  v1::Failure FailureOf(End end) const {
    EXPECT_EQ(end, End::kReported);
    EXPECT_TRUE(agent_->finished().has_value());
    return agent_->finished().value_or(v1::FinishRequest()).failure();
  }

  void SavesTake(absl::Duration time) {
    script_.in_save = [this, time] { simulated_clock_.Advance(time); };
  }
  // Each step's metrics came, once and in order, and before the commit that covers them.
  void ExpectMetricsBeforeTheirCommits(int64_t steps) const {
    int64_t next = 1;
    for (const std::string& call : agent_->calls()) {
      int64_t step = 0;
      if (absl::SimpleAtoi(absl::StripPrefix(call, "metrics "), &step)) {
        EXPECT_EQ(step, next++);
      } else if (absl::SimpleAtoi(absl::StripPrefix(call, "commit "), &step)) {
        EXPECT_LT(step, next);
      }
    }
    EXPECT_EQ(next, steps + 1);
  }

  SimulatedClock simulated_clock_;
  const SystemClock system_clock_;
  const Clock* clock_ = &simulated_clock_;
  absl::Duration stop_grace_ = absl::Seconds(5);
  int64_t most_waiting_steps_ = 1000;
  const testing_support::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::unique_ptr<FakeAgent> agent_;
  Script script_;
  StopRequest stop_;
  bool prepare_throws_ = false;
  std::ostringstream out_;
};

TEST_F(RunTest, TrainsCheckpointsExportsAndReports) {
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_THAT(agent_->calls_but_metrics(),
              ElementsAre("begin 2", "commit 2", "begin 4", "commit 4", "finish"));
  ExpectMetricsBeforeTheirCommits(4);
  const v1::RunReport report = agent_->finished()->report();
  EXPECT_FALSE(agent_->finished()->has_failure());
  EXPECT_EQ(report.steps(), 4);
  EXPECT_EQ(report.tokens(), 400);
  EXPECT_DOUBLE_EQ(report.final_loss(), 4.6);
  EXPECT_EQ(report.tokens_per_second(), 100) << "the median ignores the slow step";
  EXPECT_EQ(report.fp8_gemms(), 21);
  EXPECT_EQ(report.weights_sha256(), "weights after 4");
  EXPECT_EQ(report.checkpoint_folder(), CheckpointFolder(4, 3));
  EXPECT_EQ(report.export_folder(), Root() + "/export.epoch-3");
  EXPECT_TRUE(fs::exists(report.export_folder() + "/manifest.json"));
  const auto json =
      nlohmann::json::parse(ReadFile(Root() + "/report.epoch-3.json", 1 << 20).value());
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(agent_->committed()[0].manifest_sha256(), Sha256Of("step 2"));
}

TEST_F(RunTest, WithoutAnIntervalOnlyTheLastStepIsSaved) {
  agent_->assignment.mutable_spec()->mutable_stages(0)->mutable_checkpoint()->set_every_steps(0);
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_EQ(agent_->committed().size(), 1u);
  EXPECT_EQ(agent_->committed()[0].step(), 4);
}

TEST_F(RunTest, NoExportIsMadeWhenNoneIsWanted) {
  agent_->assignment.mutable_spec()->mutable_stages(0)->mutable_checkpoint()->set_export_format(
      "none");
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_FALSE(fs::exists(Root() + "/export.epoch-3"));
  EXPECT_EQ(agent_->finished()->report().export_folder(), "");
}

TEST_F(RunTest, TheExportOfAnEarlierAttemptIsSweptAndItsFilesAreNotTouchedLater) {
  ASSERT_TRUE(MakeFolderWithFile(Root() + "/export.epoch-2", "not reported").ok());
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_FALSE(fs::exists(Root() + "/export.epoch-2"));
  EXPECT_EQ(ReadFile(Root() + "/export.epoch-3/manifest.json", 100).value(), "export of epoch");
}

TEST_F(RunTest, ObsoleteCheckpointsAreRemovedAndNothingElse) {
  ResumeFrom(2, 2);
  ASSERT_TRUE(MakeFolderWithFile(CheckpointFolder(1, 1), "x").ok());
  ASSERT_TRUE(MakeFolderWithFile(folder_ + "/models", "x").ok());
  agent_->obsolete_folders = {CheckpointFolder(1, 1), folder_ + "/models"};
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_FALSE(fs::exists(CheckpointFolder(1, 1)));
  EXPECT_TRUE(fs::exists(folder_ + "/models"));
}

TEST_F(RunTest, AResumedRunSweepsWhatWasNeverCommitted) {
  ResumeFrom(2, 1);
  ASSERT_TRUE(MakeFolderWithFile(CheckpointFolder(3, 2), "not committed").ok());
  ASSERT_TRUE(MakeFolderWithFile(CheckpointFolder(1, 1), "committed earlier").ok());
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_FALSE(fs::exists(CheckpointFolder(3, 2)));
  EXPECT_TRUE(fs::exists(CheckpointFolder(2, 1)));
  EXPECT_TRUE(fs::exists(CheckpointFolder(1, 1)));
  EXPECT_EQ(agent_->committed().size(), 1u);
}

TEST_F(RunTest, ARunThatResumesAtItsEndReportsTheFiguresOfTheLastStep) {
  ASSERT_EQ(Execute(), End::kReported);
  const double loss = agent_->finished()->report().final_loss();
  ResumeFrom(4, 3);
  agent_->assignment.mutable_lease()->set_epoch(4);
  agent_->ForgetCalls();
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_THAT(agent_->calls(), ElementsAre("finish")) << "nothing is saved twice";
  EXPECT_EQ(agent_->finished()->report().final_loss(), loss);
  EXPECT_EQ(agent_->finished()->report().tokens(), 400);
  EXPECT_EQ(agent_->finished()->report().steps(), 4);
  EXPECT_EQ(agent_->finished()->report().checkpoint_folder(), CheckpointFolder(4, 3));
}

TEST_F(RunTest, ADamagedCheckpointIsAFaultOfTheStorage) {
  ResumeFrom(2, 1);
  agent_->assignment.mutable_resume_from()->set_manifest_sha256(Sha256Of("another"));
  const v1::Failure failure = FailureOf(Execute());
  EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_STORAGE);
  EXPECT_THAT(failure.message(), HasSubstr("is damaged"));
}

TEST_F(RunTest, AMissingCheckpointSaysThatTheStorageMustBeShared) {
  ResumeFrom(2, 1);
  fs::remove_all(CheckpointFolder(2, 1));
  const v1::Failure failure = FailureOf(Execute());
  EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_STORAGE);
  EXPECT_THAT(failure.message(), HasSubstr("put output_folder on storage that every worker sees"));
}

TEST_F(RunTest, ErrorsBecomeCauses) {
  script_.prepare = absl::NotFoundError("no such file /model/config.json");
  EXPECT_EQ(FailureOf(Execute()).cause(), v1::FAILURE_CAUSE_INVALID_INPUT);
  script_.prepare = absl::OkStatus();

  script_.failing_step = 3;
  script_.step = absl::OutOfRangeError("loss is NaN");
  EXPECT_EQ(FailureOf(Execute()).cause(), v1::FAILURE_CAUSE_NON_FINITE);
  script_.failing_step = 0;

  script_.out_of_memory = true;
  EXPECT_EQ(FailureOf(Execute()).cause(), v1::FAILURE_CAUSE_OUT_OF_MEMORY);
}

TEST_F(RunTest, AFullDiskIsAFaultOfTheStorageAndCommitsNothing) {
  script_.save = absl::ResourceExhaustedError("writing x: No space left on device");
  EXPECT_EQ(FailureOf(Execute()).cause(), v1::FAILURE_CAUSE_STORAGE);
  EXPECT_TRUE(agent_->committed().empty());
}

TEST_F(RunTest, AnUnwritableOutputFolderIsAFaultOfTheStorage) {
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/out", "a file, no folder").ok());
  EXPECT_EQ(FailureOf(Execute()).cause(), v1::FAILURE_CAUSE_STORAGE);
}

TEST_F(RunTest, AnExceptionThatNobodyForesawIsOneLine) {
  prepare_throws_ = true;
  v1::Failure failure = FailureOf(Execute());
  EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_INVALID_INPUT) << "another try would meet it again";
  EXPECT_EQ(failure.message(), "reading the job's inputs: [json.exception] cannot use at()");
  prepare_throws_ = false;
  script_.throws = true;
  failure = FailureOf(Execute());
  EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_INTERNAL);
  EXPECT_EQ(failure.message(), "training: type must be number, but is string");
}

TEST_F(RunTest, AProgressFileThatIsNoneIsIgnored) {
  for (const char* text : {R"({"steps": "4"})", R"({"steps": 4, "tokens": []})", "[4]", "{",
                           R"({"final_loss": {}})", R"({"steps": 4, "steps": 4})"}) {
    ResumeFrom(4, 2);
    ASSERT_TRUE(WriteFileAtomically(Root() + "/progress.epoch-2.json", text).ok());
    ASSERT_EQ(Execute(), End::kReported) << text;
    EXPECT_EQ(agent_->finished()->report().tokens(), 0) << text;
  }
}

TEST_F(RunTest, AStopSavesACheckpointThatFitsIntoTheGrace) {
  SavesTake(absl::Seconds(2));
  script_.stop_step = 3;
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_THAT(agent_->calls_but_metrics(),
              ElementsAre("begin 2", "commit 2", "begin 3", "commit 3"));
  ExpectMetricsBeforeTheirCommits(3);
}

TEST_F(RunTest, AStopRightAfterACheckpointSavesNoSecondOne) {
  script_.stop_step = 2;
  SavesTake(absl::Seconds(1));
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_THAT(agent_->calls_but_metrics(), ElementsAre("begin 2", "commit 2"));
}

TEST_F(RunTest, AStopWaitsForNoCheckpointOfUnknownLength) {
  script_.stop_step = 1;
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_THAT(agent_->calls(), ElementsAre("metrics 1"));
}

TEST_F(RunTest, AStopGoesOnWhenItsCheckpointIsRefused) {
  SavesTake(absl::Seconds(2));
  script_.stop_step = 3;
  agent_->refuse_commit_of_step = 3;
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_THAT(out_.str(), HasSubstr("could not save a checkpoint"));
}

TEST_F(RunTest, AStopIsObeyedBetweenStepsWithoutAReport) {
  script_.stop_step = 3;
  SavesTake(absl::Seconds(4));  // half of that again is beyond the 5 of the grace
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_THAT(agent_->calls_but_metrics(), ElementsAre("begin 2", "commit 2"));
  ExpectMetricsBeforeTheirCommits(3);
}

// Blocks an agent's call until the trainer gives it up, or the test opens the gate.
class Gate {
 public:
  void Open() { open_.Notify(); }
  bool Pass(const grpc::ServerContext& context) {
    while (!open_.WaitForNotificationWithTimeout(absl::Milliseconds(5))) {
      if (context.IsCancelled()) return false;
    }
    return true;
  }

 private:
  absl::Notification open_;
};

TEST_F(RunTest, TrainingGoesOnWhileTheCoordinatorIsAway) {
  constexpr int64_t kSteps = 60;
  agent_->assignment.mutable_spec()->mutable_stages(0)->set_steps(kSteps);
  Gate coordinator;
  agent_->hold_commit = [&](const grpc::ServerContext& context, int64_t) {
    return coordinator.Pass(context);
  };
  script_.in_step = [&](int64_t step) {
    if (step == 7) coordinator.Open();
    // From then on an answer takes a few steps.
    if (step > 7) absl::SleepFor(absl::Milliseconds(2));
  };
  ASSERT_EQ(Execute(), End::kReported);
  ExpectMetricsBeforeTheirCommits(kSteps);
  const std::vector<v1::Checkpoint> committed = agent_->committed();
  ASSERT_GE(committed.size(), 3u);
  EXPECT_EQ(committed[0].step(), 2);
  EXPECT_GT(committed[1].step(), 6) << "what fell due during the outage was postponed";
  EXPECT_LT(committed[1].step(), kSteps) << "and saved once the commit was answered";
  EXPECT_EQ(committed.back().step(), kSteps);
  EXPECT_EQ(agent_->finished()->report().steps(), kSteps);
}

TEST_F(RunTest, NothingIsExportedOrReportedBeforeTheLastCommitIsAnswered) {
  agent_->hold_commit = [&](const grpc::ServerContext&, int64_t step) {
    if (step == 4) absl::SleepFor(absl::Milliseconds(100));
    EXPECT_FALSE(fs::exists(Root() + "/export.epoch-3"));
    EXPECT_FALSE(fs::exists(Root() + "/report.epoch-3.json"));
    return true;
  };
  ASSERT_EQ(Execute(), End::kReported);
  EXPECT_TRUE(fs::exists(Root() + "/export.epoch-3"));
}

TEST_F(RunTest, AStopDuringAnOutageEndsWithinTheGrace) {
  clock_ = &system_clock_;
  stop_grace_ = absl::Milliseconds(400);
  script_.in_save = [] { absl::SleepFor(absl::Milliseconds(1)); };
  script_.stop_step = 3;
  agent_->hold_commit = [](const grpc::ServerContext& context, int64_t) {
    return Gate().Pass(context);
  };
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_LT(system_clock_.Monotonic() - stop_.since(), 10 * stop_grace_);
  EXPECT_THAT(agent_->calls_but_metrics(), ElementsAre("begin 2", "commit 2"));
  EXPECT_THAT(agent_->committed(), IsEmpty());
}

// The agent has no room for metrics; the trainer waits with a step's metrics in its hands.
TEST_F(RunTest, AStopIsObeyedWhileMetricsWait) {
  clock_ = &system_clock_;
  stop_grace_ = absl::Milliseconds(200);
  most_waiting_steps_ = 2;
  agent_->hold_metrics = [&](const grpc::ServerContext& context, int64_t) {
    stop_.Set(absl::ToInt64Nanoseconds(system_clock_.Monotonic()));
    return Gate().Pass(context);
  };
  agent_->assignment.mutable_spec()->mutable_stages(0)->mutable_checkpoint()->set_every_steps(0);
  agent_->assignment.mutable_spec()->mutable_stages(0)->set_steps(1000000);
  EXPECT_EQ(Execute(), End::kStopped);
  EXPECT_THAT(agent_->calls(), IsEmpty()) << "and no checkpoint without its metrics";
}

TEST_F(RunTest, AFailureIsReportedAfterTheCommitUnderWay) {
  script_.failing_step = 3;
  script_.step = absl::OutOfRangeError("loss is NaN");
  agent_->hold_commit = [](const grpc::ServerContext&, int64_t) {
    absl::SleepFor(absl::Milliseconds(100));
    return true;
  };
  EXPECT_EQ(FailureOf(Execute()).cause(), v1::FAILURE_CAUSE_NON_FINITE);
  EXPECT_EQ(agent_->committed().size(), 1u);
  EXPECT_THAT(agent_->calls_but_metrics(), ElementsAre("begin 2", "commit 2", "finish"));
}

TEST_F(RunTest, AFencedCommitEndsTheRunWithoutAReport) {
  agent_->on_commit = {grpc::StatusCode::FAILED_PRECONDITION, "LEASE_FENCED: epoch 3"};
  EXPECT_EQ(Execute(), End::kAgentLost);
  EXPECT_THAT(agent_->calls_but_metrics(), ElementsAre("begin 2", "commit 2"));
}

TEST_F(RunTest, ALostAgentEndsTheRun) {
  agent_->on_commit = {grpc::StatusCode::UNAVAILABLE, "gone"};
  EXPECT_EQ(Execute(), End::kAgentLost);
}

}  // namespace
}  // namespace octavo::trainer
