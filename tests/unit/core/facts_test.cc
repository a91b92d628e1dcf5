// Checkpoints, metrics and logs under a lease.
#include "absl/strings/str_cat.h"
#include "tests/unit/core/scene.h"

namespace octavo::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FactsTest : public testing::Test {
 protected:
  explicit FactsTest(const Settings& settings = {}) : fleet(settings) {
    fleet.Join("w");
    id = fleet.Submit().id();
    lease = fleet.LeaseOf(id);
    fleet.Beat(worker, {lease});
  }
  // Ends the attempt and begins the next one.
  void Restart() {
    EXPECT_TRUE(fleet.Finish(lease, v1::FAILURE_CAUSE_TRAINER_CRASHED).ok());
    fleet.PassBeating(absl::Seconds(1), worker);
    lease = fleet.LeaseOf(id);
  }
  std::vector<std::string> Committed() {
    std::vector<std::string> folders;
    const v1::Job job = fleet.Job(id);
    for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
      folders.push_back(checkpoint.folder());
    }
    return folders;
  }
  absl::Status Begin(int64_t step, const std::string& folder) {
    v1::BeginCheckpointRequest request;
    *request.mutable_lease() = lease;
    request.set_step(step);
    request.set_folder(folder);
    return fleet.StatusOf(request);
  }
  Scene fleet;
  const v1::WorkerIdentity worker = fleet.Identity("w");
  std::string id;
  v1::LeaseIdentity lease;
};

TEST_F(FactsTest, ACommitMovesTheLineageAndNamesFoldersBeyondThoseKept) {
  EXPECT_THAT(*fleet.Commit(lease, 10, "/c10"), IsEmpty());
  EXPECT_THAT(*fleet.Commit(lease, 20, "/c20"), IsEmpty());
  EXPECT_THAT(*fleet.Commit(lease, 30, "/c30"), ElementsAre("/c10"));
  EXPECT_EQ(fleet.Job(id).checkpoint().step(), 30);
  EXPECT_EQ(fleet.Job(id).checkpoint().epoch(), 1);
}

// A folder whose removal was asked for in an answer that never arrived would lie there for ever.
TEST_F(FactsTest, AnObsoleteFolderIsNamedUntilTheNextCommitShowsThatTheAnswerArrived) {
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(fleet.Commit(lease, step, absl::StrCat("/c", step)).ok());
  }
  EXPECT_THAT(*fleet.Commit(lease, 3, "/c3"), ElementsAre("/c1")) << "a repetition";
  Restart();
  EXPECT_THAT(*fleet.Commit(lease, 4, "/c4"), ElementsAre("/c1", "/c2")) << "another attempt";
  EXPECT_THAT(*fleet.Commit(lease, 5, "/c5"), ElementsAre("/c3"));
  EXPECT_TRUE(fleet.Finish(lease).ok());
  EXPECT_THAT(Committed(), ElementsAre("/c4", "/c5"));
}

TEST_F(FactsTest, ARepeatedCommitChangesNothingEvenAcrossARestart) {
  ASSERT_TRUE(fleet.Commit(lease, 10, "/c10").ok());
  const int64_t version = fleet.Job(id).version();
  EXPECT_TRUE(fleet.Commit(lease, 10, "/c10").ok());
  fleet.Restart();
  EXPECT_TRUE(fleet.Commit(lease, 10, "/c10").ok());
  EXPECT_EQ(fleet.Job(id).version(), version);
}

TEST_F(FactsTest, StepsOfCheckpointsGrow) {
  ASSERT_TRUE(fleet.Commit(lease, 10, "/c10").ok());
  EXPECT_EQ(fleet.Commit(lease, 10, "/again").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fleet.Commit(lease, 9, "/c9").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Begin(9, "/c9").code(), absl::StatusCode::kInvalidArgument);
  Restart();
  EXPECT_TRUE(fleet.Commit(lease, 10, "/again").ok()) << "a later attempt may repeat the step";
}

TEST_F(FactsTest, ACommittedFolderIsNotWrittenAgain) {
  EXPECT_TRUE(Begin(10, "/c10").ok());
  ASSERT_TRUE(fleet.Commit(lease, 10, "/c10").ok());
  EXPECT_EQ(Begin(11, "/c10").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(fleet.Commit(lease, 11, "/c10").status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FactsTest, MetricsOfALaterAttemptReplaceThoseOfTheSameStep) {
  v1::PushMetricsRequest push;
  *push.mutable_lease() = lease;
  v1::MetricPoint* point = push.add_points();
  point->set_name("train/loss");
  point->set_step(3);
  point->set_value(1.5);
  EXPECT_TRUE(fleet.StatusOf(push).ok());
  Restart();
  *push.mutable_lease() = lease;
  point->set_value(2.5);
  EXPECT_TRUE(fleet.StatusOf(push).ok());
  ASSERT_EQ(fleet.durable.metrics[id].size(), 1u);
  EXPECT_EQ(fleet.durable.metrics[id].begin()->second.value(), 2.5);
}

TEST_F(FactsTest, LogsOfAllAttemptsAreOneSequence) {
  EXPECT_TRUE(fleet.PushLogs(lease, 0, {"a", "b"}).ok());
  EXPECT_TRUE(fleet.PushLogs(lease, 1, {"c"}).ok());
  Restart();
  EXPECT_TRUE(fleet.PushLogs(lease, 0, {"d"}).ok());
  EXPECT_THAT(fleet.Logs(id), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(fleet.durable.logs[id][2].attempt_id(), "job-1.1");
  EXPECT_EQ(fleet.durable.logs[id][3].attempt_id(), "job-1.2");
}

TEST_F(FactsTest, ARepeatedLogBatchIsStoredOnceEvenAcrossARestart) {
  EXPECT_TRUE(fleet.PushLogs(lease, 0, {"a"}).ok());
  EXPECT_TRUE(fleet.PushLogs(lease, 0, {"a"}).ok());
  fleet.Restart();
  EXPECT_TRUE(fleet.PushLogs(lease, 0, {"a"}).ok());
  EXPECT_TRUE(fleet.PushLogs(lease, 1, {"b"}).ok());
  EXPECT_THAT(fleet.Logs(id), ElementsAre("a", "b"));
}

TEST_F(FactsTest, ALogBatchThatOvertookAnotherIsSentBack) {
  EXPECT_EQ(fleet.PushLogs(lease, 1, {"b"}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(fleet.Logs(id), IsEmpty());
}

class SmallLogs : public FactsTest {
 protected:
  static Settings Limited() {
    Settings settings;
    settings.max_log_bytes_per_job = 10;
    return settings;
  }
  SmallLogs() : FactsTest(Limited()) {}
};

TEST_F(SmallLogs, BeyondTheLimitLinesAreDroppedAndOneLineSaysSo) {
  EXPECT_TRUE(fleet.PushLogs(lease, 0, {"12345", "12345", "x", "y"}).ok());
  fleet.Restart();
  EXPECT_TRUE(fleet.PushLogs(lease, 1, {"z"}).ok());
  EXPECT_TRUE(fleet.PushLogs(lease, 2, {"z"}).ok());
  EXPECT_THAT(fleet.Logs(id),
              ElementsAre("12345", "12345",
                          "octavod: the logs of this job reached 10 bytes; further lines are "
                          "dropped"));
}

}  // namespace
}  // namespace octavo::core
