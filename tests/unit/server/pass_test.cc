// The loop pass by pass, over a store that fails as told and a clock that moves as told: what a
// disk that cannot be written costs, and whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/support/job_spec.h"
#include "server/loop/core_loop.h"
#include "tests/support/durable_map.h"
#include "tests/support/server_jobs.h"

namespace octavo::loop {
namespace {

using testing_support::DurableMap;
using testing_support::Point;
using testing_support::SomeSpec;

// Shared between a loop and the test that looks behind it.
struct Disk {
  DurableMap durable;
  bool full = false;
  std::string poison;  // a transaction that writes metrics of this job fails
  int transactions = 0;
};

class FailingStore final : public storage::Store {
 public:
  explicit FailingStore(Disk* disk) : disk_(*disk) {}

  absl::StatusOr<core::DurableState> Load() override { return disk_.durable.State(); }
  absl::Status Commit(absl::Span<const core::Write> writes) override {
    ++disk_.transactions;
    if (disk_.full) return absl::ResourceExhaustedError("the disk is full");
    for (const core::Write& write : writes) {
      const auto* metrics = std::get_if<core::PutMetrics>(&write);
      if (metrics != nullptr && metrics->job_id == disk_.poison) {
        return absl::DataLossError("the table of metrics is damaged");
      }
    }
    for (const core::Write& write : writes) disk_.durable.Apply(write);
    return absl::OkStatus();
  }
  absl::StatusOr<std::map<int64_t, double>> ReadCurve(const std::string&, absl::string_view,
                                                      int64_t, int64_t) override {
    return std::map<int64_t, double>();
  }

 private:
  Disk& disk_;
};

class Sink final : public SessionSink {
 public:
  void Send(v1::SessionResponse message) override { received.MergeFrom(message); }
  v1::SessionResponse received;
};

class PassTest : public testing::Test {
 protected:
  PassTest() {
    loop_ = *CoreLoop::Open(options_, std::make_unique<FailingStore>(&disk_), &clock_);
    worker_.set_worker_id("worker-a");
    worker_.set_incarnation("a");
    loop_->Call([this](absl::StatusOr<CoreLoop::Context*> context) {
      (*context)->sessions.Open(worker_, sink_);
    });
  }

  // What was answered, INTERNAL while nothing was.
  using Outcome = std::shared_ptr<absl::Status>;
  CoreLoop::Answered Into(Outcome outcome) {
    *outcome = absl::InternalError("not answered");
    return CoreLoop::Answered(
        [outcome](absl::StatusOr<core::AnswerBody> body) { *outcome = body.status(); });
  }
  Outcome Post(core::Request request) {
    auto outcome = std::make_shared<absl::Status>();
    loop_->Decide(std::move(request), {}, Into(outcome));
    return outcome;
  }
  Outcome Post(core::Observation observation) {
    auto outcome = std::make_shared<absl::Status>();
    loop_->Observe(std::move(observation), {}, Into(outcome));
    return outcome;
  }
  void Run() {
    while (loop_->Pass()) {
    }
  }

  core::SubmitJob Submission(const std::string& name) {
    core::SubmitJob submit;
    submit.request.set_request_id(name);
    *submit.request.mutable_spec() = SomeSpec();
    FillDefaults(submit.request.mutable_spec());
    submit.job_id = "job-" + name;
    submit.spec_sha256 = "hash";
    return submit;
  }
  core::RegisterWorker Registration(int devices = 1) {
    core::RegisterWorker body;
    *body.request.mutable_worker() = worker_;
    for (int i = 0; i < devices; ++i) {
      v1::Device& device = *body.request.add_devices();
      device.set_kind("cpu");
      device.set_index(i);
      device.set_memory_bytes(int64_t{64} << 30);
    }
    return body;
  }
  core::Heartbeat Beat() {
    core::Heartbeat body;
    *body.request.mutable_worker() = worker_;
    body.request.set_sequence(++sequence_);
    for (const v1::LeaseIdentity& lease : running_) *body.request.add_running() = lease;
    return body;
  }
  v1::Job Job(const std::string& id) {
    v1::Job job;
    loop_->Read([&](const core::Core& core) { job = core.Describe(*core.jobs().Find(id)); });
    return job;
  }
  // A job of the worker's, listed in its heartbeats.
  v1::LeaseIdentity Start(const std::string& name) {
    Post(Registration(2));
    Post(Submission(name));
    Post(Beat());
    Run();
    v1::LeaseIdentity lease = sink_->received.assignments(0).lease();
    sink_->received.Clear();
    running_.push_back(lease);
    Post(Beat());
    Run();
    return lease;
  }
  v1::PushMetricsRequest Push(const v1::LeaseIdentity& lease, int64_t step) {
    v1::PushMetricsRequest push;
    *push.mutable_lease() = lease;
    *push.add_points() = Point("train/loss", step, 1.0);
    return push;
  }

  CoreLoopOptions options_;
  Disk disk_;
  SimulatedClock clock_;
  std::unique_ptr<CoreLoop> loop_;
  v1::WorkerIdentity worker_;
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::vector<v1::LeaseIdentity> running_;
  int64_t sequence_ = 0;
};

TEST_F(PassTest, AWriteThatFailsFailsOnlyWhoAskedForIt) {
  const v1::LeaseIdentity lease = Start("a");
  disk_.poison = "job-a";
  const Outcome push = Post(Push(lease, 1));
  const Outcome submit = Post(Submission("b"));
  const Outcome beat = Post(Beat());
  const Outcome cancel = Post(core::CancelJob{"job-a"});
  Run();
  EXPECT_EQ(push->code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(submit->ok()) << *submit;
  EXPECT_TRUE(beat->ok()) << *beat;
  EXPECT_TRUE(cancel->ok()) << *cancel;
  EXPECT_EQ(disk_.durable.jobs.count("job-b"), 1u);
  EXPECT_EQ(Job("job-a").state(), v1::JOB_STATE_CANCELLING);
}

TEST_F(PassTest, ADiskThatIsFullForMinutesCostsNoLeaseAndNoAnswerThatNeedsNoWrite) {
  const v1::LeaseIdentity lease = Start("a");
  disk_.full = true;
  for (int second = 0; second < 300; ++second) {
    clock_.Advance(absl::Seconds(1));
    const Outcome push = Post(Push(lease, 1));
    const Outcome submit = Post(Submission(absl::StrCat("full-", second)));
    const Outcome repeated = Post(Submission("a"));
    const Outcome beat = Post(Beat());
    sink_->received.Clear();
    Run();
    ASSERT_EQ(push->code(), absl::StatusCode::kResourceExhausted);
    ASSERT_EQ(submit->code(), absl::StatusCode::kResourceExhausted);
    ASSERT_TRUE(repeated->ok()) << *repeated;
    ASSERT_TRUE(beat->ok()) << *beat;
    ASSERT_EQ(sink_->received.renewed_size(), 1);
    ASSERT_EQ(sink_->received.stop_size(), 0);
    ASSERT_EQ(loop_->TakeSnapshot().jobs[v1::JOB_STATE_RUNNING], 1);
  }
  disk_.full = false;
  EXPECT_EQ(disk_.durable.jobs.size(), 1u);
  const Outcome push = Post(Push(lease, 1));
  Run();
  EXPECT_TRUE(push->ok()) << *push;
  EXPECT_EQ(Job("job-a").attempts_size(), 1);
  EXPECT_EQ(Job("job-a").state(), v1::JOB_STATE_RUNNING);
}

TEST_F(PassTest, WorkersMayComeWhileTheDiskIsFullAndAreGivenJobsOnceThereIsRoom) {
  Post(Submission("a"));
  Run();
  EXPECT_EQ(Job("job-a").pending_reason(), "no registered worker has a cpu device");
  disk_.full = true;
  const Outcome registered = Post(Registration());
  const Outcome beat = Post(Beat());
  Run();
  EXPECT_TRUE(registered->ok()) << *registered;
  EXPECT_TRUE(beat->ok()) << *beat;
  EXPECT_EQ(Job("job-a").pending_reason(), "waits for a free cpu device");
  EXPECT_EQ(sink_->received.assignments_size(), 0) << "an assignment is durable before it leaves";
  const int tried = disk_.transactions;
  Run();
  EXPECT_EQ(disk_.transactions, tried) << "a full disk is not hammered";
  disk_.full = false;
  clock_.Advance(absl::Seconds(1));
  Run();
  EXPECT_EQ(sink_->received.assignments_size(), 1);
  EXPECT_EQ(Job("job-a").state(), v1::JOB_STATE_RUNNING);
}

// The end of a lapsed lease waits for the disk, and nothing passes under it meanwhile.
TEST_F(PassTest, ALeaseThatLapsesWhileTheDiskIsFullStaysFencedAndEndsOnceThereIsRoom) {
  const v1::LeaseIdentity lease = Start("a");
  disk_.full = true;
  for (int second = 0; second < 20; ++second) {
    clock_.Advance(absl::Seconds(1));
    Run();
  }
  EXPECT_EQ(Job("job-a").state(), v1::JOB_STATE_RUNNING);
  const Outcome push = Post(Push(lease, 1));
  sink_->received.Clear();
  Post(Registration(2));
  Post(Beat());
  Run();
  EXPECT_EQ(push->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(sink_->received.stop_size(), 1);
  EXPECT_EQ(sink_->received.renewed_size(), 0);
  disk_.full = false;
  clock_.Advance(absl::Seconds(1));
  Run();
  EXPECT_EQ(Job("job-a").attempts(0).failure().cause(), v1::FAILURE_CAUSE_WORKER_LOST);
}

TEST_F(PassTest, BulkThatFillsItsQueueDoesNotRefuseAHeartbeat) {
  options_.queue_limit = 3;
  loop_ = *CoreLoop::Open(options_, std::make_unique<FailingStore>(&disk_), &clock_);
  Post(Registration());
  Run();
  std::vector<Outcome> submits;
  for (int i = 0; i < 4; ++i) submits.push_back(Post(Submission(absl::StrCat(i))));
  const Outcome beat = Post(Beat());
  EXPECT_EQ(submits.back()->code(), absl::StatusCode::kResourceExhausted);
  Run();
  EXPECT_TRUE(beat->ok()) << *beat;
  EXPECT_TRUE(submits[2]->ok());
}

TEST_F(PassTest, AStartAndTheReturnOfEveryWorkerWriteNothing) {
  const v1::LeaseIdentity lease = Start("a");
  for (int i = 0; i < 50; ++i) Post(Submission(absl::StrCat("waits-", i)));
  Run();
  loop_ = *CoreLoop::Open(options_, std::make_unique<FailingStore>(&disk_), &clock_);
  disk_.transactions = 0;
  core::RegisterWorker registration = Registration(1);
  *registration.request.add_running() = lease;
  const Outcome registered = Post(registration);
  const Outcome beat = Post(Beat());
  Run();
  EXPECT_TRUE(registered->ok() && beat->ok());
  EXPECT_EQ(disk_.transactions, 0);
}

}  // namespace
}  // namespace octavo::loop
