#include "worker/agent/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/match.h"
#include "tests/unit/agent/support.h"

namespace octavo::agent {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

Outbox::Options MakeOptions() {
  return {.lease = MakeAssignment("x").lease(),
          .log_bytes = 10000,
          .metric_points = 100,
          .backoff = {.first = absl::Milliseconds(1), .longest = absl::Milliseconds(2)},
          .seed = 1,
          .on_fenced = nullptr};
}

std::vector<v1::MetricPoint> Points(int64_t step) {
  v1::MetricPoint point;
  point.set_name("train/loss");
  point.set_step(step);
  return {point};
}

// Holds every call back until it is opened.
class Gate {
 public:
  void Open() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  void Pass() {
    absl::MutexLock lock(&mutex_);
    arrived_ = true;
    mutex_.Await(absl::Condition(&open_));
  }
  void AwaitArrival() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&arrived_));
  }

 private:
  absl::Mutex mutex_;
  bool arrived_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(Outbox, MetricsGoBeforeTheCommitAndLogsBeforeTheEnd) {
  Gate gate;
  RecordingSender sender([&](const Fact&) {
    gate.Pass();
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  outbox.AddStarted();
  std::thread trainer([&] {
    EXPECT_TRUE(outbox.AddMetrics(Points(1)).ok());
    EXPECT_TRUE(outbox.AddMetrics(Points(2)).ok());
    EXPECT_TRUE(outbox.CommitCheckpoint({}).ok());
    EXPECT_TRUE(outbox.AddMetrics(Points(3)).ok());
    outbox.AddLog("last line", 0);
    outbox.AddFinished(std::nullopt, {});
  });
  gate.Open();
  trainer.join();
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));

  std::vector<std::string> order;
  for (const Fact& fact : sender.delivered()) {
    if (const auto* metrics = std::get_if<v1::PushMetricsRequest>(&fact)) {
      for (const auto& point : metrics->points()) order.push_back(std::to_string(point.step()));
    } else {
      order.push_back(std::visit([](const auto& r) { return r.GetTypeName(); }, fact));
    }
  }
  // Metrics and logs take turns; both wait for the commit here and are before the end.
  ASSERT_EQ(order.size(), 7u);
  if (order[4] != "3") std::swap(order[4], order[5]);
  EXPECT_THAT(order,
              ElementsAre("octavo.v1.ReportAttemptStartedRequest", "1", "2",
                          "octavo.v1.CommitCheckpointRequest", "3", "octavo.v1.PushLogsRequest",
                          "octavo.v1.ReportAttemptFinishedRequest"));
}

TEST(Outbox, AFactIsRepeatedUnchangedUntilItIsAnswered) {
  std::atomic<int> calls{0};
  std::vector<std::string> tried;  // by the outbox's thread only
  RecordingSender sender([&](const Fact& fact) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    tried.push_back(std::get<v1::PushLogsRequest>(fact).SerializeAsString());
    if (++calls < 4) return absl::UnavailableError("the coordinator restarts");
    return v1::CommitCheckpointResponse();
  });
  {
    Outbox outbox(MakeOptions(), &sender);
    outbox.AddLog("line", 7);
    EXPECT_TRUE(Eventually([&] { return calls >= 4; }));
  }
  ASSERT_EQ(tried.size(), 4u);
  for (const std::string& request : tried) EXPECT_EQ(request, tried[0]);
}

TEST(Outbox, LogBatchesAreNumberedFromZero) {
  RecordingSender sender;
  Outbox outbox(MakeOptions(), &sender);
  for (int i = 0; i < 3; ++i) {
    outbox.AddLog("line", 0);
    const size_t batches = static_cast<size_t>(i) + 1;
    ASSERT_TRUE(Eventually([&] { return sender.delivered().size() == batches; }));
  }
  std::vector<int64_t> sequences;
  for (const auto& r : sender.Delivered<v1::PushLogsRequest>()) sequences.push_back(r.sequence());
  EXPECT_THAT(sequences, ElementsAre(0, 1, 2));
}

TEST(Outbox, AFloodOfLinesIsBoundedAndTheLossIsCounted) {
  Gate gate;
  RecordingSender sender([&](const Fact&) {
    gate.Pass();
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  outbox.AddStarted();  // is held, so that lines pile up
  gate.AwaitArrival();
  for (int i = 0; i < 1000; ++i) outbox.AddLog(std::string(36, 'x'), 0);  // 100 bytes each
  outbox.AddFinished(std::nullopt, {});
  gate.Open();
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));
  const std::vector<std::string> lines = sender.Lines();
  ASSERT_EQ(lines.size(), 101u);
  EXPECT_THAT(lines.back(), HasSubstr("900 lines dropped"));
}

TEST(Outbox, FullMetricsMakeTheTrainerWait) {
  Gate gate;
  RecordingSender sender([&](const Fact&) {
    gate.Pass();
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  std::atomic<int> added{0};
  std::thread trainer([&] {
    for (int i = 0; i < 500; ++i, ++added) EXPECT_TRUE(outbox.AddMetrics(Points(i)).ok());
  });
  // One batch may be on its way besides the full queue.
  EXPECT_TRUE(Eventually([&] { return added >= 100; }));
  EXPECT_LE(added, 201);
  gate.Open();
  trainer.join();
  outbox.AddFinished(std::nullopt, {});
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));
  int points = 0;
  for (const auto& r : sender.Delivered<v1::PushMetricsRequest>()) points += r.points_size();
  EXPECT_EQ(points, 500);
}

TEST(Outbox, AFencedFactClosesItAndTellsOnce) {
  RecordingSender sender([](const Fact&) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    return absl::FailedPreconditionError("LEASE_FENCED: epoch 1 of job-a");
  });
  std::atomic<int> fenced{0};
  Outbox::Options options = MakeOptions();
  options.on_fenced = [&] { ++fenced; };
  Outbox outbox(options, &sender);
  EXPECT_TRUE(outbox.AddCheckpointBegun(1, "/x").ok());
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));
  EXPECT_EQ(outbox.AddMetrics(Points(1)).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Eventually([&] { return fenced == 1; }));
  EXPECT_EQ(sender.tries(), 1);
}

TEST(Outbox, ARefusalIsHandedOnAndTheAttemptGoesOn) {
  RecordingSender sender([](const Fact& fact) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    const auto* commit = std::get_if<v1::CommitCheckpointRequest>(&fact);
    if (commit != nullptr && commit->checkpoint().step() == 1) {
      return absl::InvalidArgumentError("step 1 lies before the committed step 2");
    }
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  v1::Checkpoint checkpoint;
  checkpoint.set_step(1);
  EXPECT_EQ(outbox.CommitCheckpoint(checkpoint).status().code(),
            absl::StatusCode::kInvalidArgument);
  checkpoint.set_step(3);
  EXPECT_TRUE(outbox.CommitCheckpoint(checkpoint).ok());
}

TEST(Outbox, TheBeginOfACheckpointIsToldWithoutWaiting) {
  Gate gate;
  RecordingSender sender([&](const Fact&) {
    gate.Pass();
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  EXPECT_TRUE(outbox.AddCheckpointBegun(7, "/x").ok());  // while nothing is answered
  std::thread trainer([&] { EXPECT_TRUE(outbox.CommitCheckpoint({}).ok()); });
  gate.Open();
  trainer.join();
  const std::vector<Fact> delivered = sender.delivered();
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(std::get<v1::BeginCheckpointRequest>(delivered[0]).step(), 7);
}

// Training goes on while a commit waits: for each batch that is sent, more is there.
TEST(Outbox, ACommitWaitsForNoMetricsThatCameAfterIt) {
  Outbox* outbox = nullptr;
  std::atomic<int64_t> step{1};
  RecordingSender sender([&](const Fact& fact) {
    if (std::holds_alternative<v1::PushMetricsRequest>(fact)) {
      (void)outbox->AddMetrics(Points(++step));  // refused once the outbox is closed below
    }
    return v1::CommitCheckpointResponse();
  });
  Outbox one(MakeOptions(), &sender);
  outbox = &one;
  EXPECT_TRUE(one.AddMetrics(Points(1)).ok());
  EXPECT_TRUE(one.CommitCheckpoint({}).ok());
  EXPECT_GE(step, 2);  // batches kept coming
}

TEST(Outbox, LogsAndMetricsTakeTurns) {
  Outbox* outbox = nullptr;
  RecordingSender sender([&](const Fact& fact) {
    if (std::holds_alternative<v1::PushMetricsRequest>(fact)) {
      (void)outbox->AddMetrics(Points(1));
    }
    return v1::CommitCheckpointResponse();
  });
  Outbox one(MakeOptions(), &sender);
  outbox = &one;
  EXPECT_TRUE(one.AddMetrics(Points(1)).ok());
  one.AddLog("line", 0);
  EXPECT_TRUE(Eventually([&] { return sender.Lines().size() == 1; }));
}

// gRPC's words for a message above the limit; octavod's own mean that it is busy.
TEST(Outbox, AFactThatIsTooLargeIsNotRepeatedAndABusyCoordinatorIsAskedAgain) {
  std::atomic<int> busy{0};
  RecordingSender sender([&](const Fact& fact) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    if (std::holds_alternative<v1::PushLogsRequest>(fact)) {
      return absl::ResourceExhaustedError("Received message larger than max (70000 vs. 65536)");
    }
    if (++busy == 1) return absl::ResourceExhaustedError("the queue is full; try again");
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  outbox.AddLog("line", 0);
  outbox.AddFinished(std::nullopt, {});
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));
  EXPECT_EQ(busy, 2);
}

TEST(Outbox, ARefusedLogBatchLeavesItsNumberToTheNext) {
  RecordingSender sender([&](const Fact& fact) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    const auto* logs = std::get_if<v1::PushLogsRequest>(&fact);
    if (logs != nullptr && logs->lines(0).text() == "bad") {
      return absl::InvalidArgumentError("lines.text: \"bad\"");
    }
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  const auto tells = [&](const std::string& line) {
    const int before = sender.tries();
    outbox.AddLog(line, 0);
    EXPECT_TRUE(Eventually([&] { return sender.tries() > before; }));
  };
  tells("first");
  tells("bad");
  EXPECT_TRUE(Eventually([&] {
    tells("next");
    return absl::StrContains(sender.Lines().back(), "next") && sender.Lines().size() > 2;
  }));
  EXPECT_THAT(sender.Lines(), Contains(HasSubstr("1 lines dropped: the coordinator refused")));
  int64_t next = 0;
  for (const auto& r : sender.Delivered<v1::PushLogsRequest>()) EXPECT_EQ(r.sequence(), next++);
}

TEST(Outbox, AMetricThatTheCoordinatorDoesNotKnowCostsNoOther) {
  RecordingSender sender([&](const Fact& fact) -> absl::StatusOr<v1::CommitCheckpointResponse> {
    const auto* metrics = std::get_if<v1::PushMetricsRequest>(&fact);
    if (metrics == nullptr) return v1::CommitCheckpointResponse();
    for (const v1::MetricPoint& point : metrics->points()) {
      if (point.name() != "train/new") continue;
      return absl::InvalidArgumentError(
          "points.name: \"train/new\" is not a metric of this version");
    }
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  for (int64_t step = 1; step <= 5; ++step) {
    std::vector<v1::MetricPoint> points = Points(step);
    points.push_back(points[0]);
    points[0].set_name("train/new");
    ASSERT_TRUE(outbox.AddMetrics(points).ok());
  }
  outbox.AddFinished(std::nullopt, {});
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));
  std::vector<int64_t> steps;
  for (const auto& request : sender.Delivered<v1::PushMetricsRequest>()) {
    for (const v1::MetricPoint& point : request.points()) {
      EXPECT_EQ(point.name(), "train/loss");
      steps.push_back(point.step());
    }
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5));
}

TEST(Outbox, ACommitThatWasAskedForIsSentThoughTheTrainerIsGone) {
  Gate gate;
  RecordingSender sender([&](const Fact&) {
    gate.Pass();
    return v1::CommitCheckpointResponse();
  });
  Outbox outbox(MakeOptions(), &sender);
  std::thread trainer(
      [&] { EXPECT_EQ(outbox.CommitCheckpoint({}).status().code(), absl::StatusCode::kAborted); });
  // The only fact is on its way when the trainer dies.
  gate.AwaitArrival();
  outbox.TrainerGone();
  trainer.join();
  outbox.AddFinished(std::nullopt, {});
  gate.Open();
  ASSERT_TRUE(outbox.AwaitClosed(kPatience));
  EXPECT_EQ(sender.Delivered<v1::CommitCheckpointRequest>().size(), 1u);
}

TEST(Outbox, TheEpochOfACheckpointIsThatOfTheLease) {
  RecordingSender sender;
  Outbox::Options options = MakeOptions();
  options.lease.set_epoch(5);
  Outbox outbox(options, &sender);
  ASSERT_TRUE(outbox.CommitCheckpoint({}).ok());
  EXPECT_EQ(sender.Delivered<v1::CommitCheckpointRequest>()[0].checkpoint().epoch(), 5);
}

}  // namespace
}  // namespace octavo::agent
