// Ten thousand pending jobs on a thousand workers. The bounds are ten times the aim, since the
// machine may be busy.
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/core/core.h"

namespace octavo::core {
namespace {

constexpr int kWorkers = 1000;
constexpr int kJobs = 10000;

class LoadTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kWorkers; ++i) {
      RegisterWorker body;
      *body.request.mutable_worker() = Identity(i);
      v1::Device* device = body.request.add_devices();
      device->set_kind("cpu");
      device->set_memory_bytes(int64_t{8} << 30);
      Observe(body);
    }
  }
  static v1::WorkerIdentity Identity(int worker) {
    v1::WorkerIdentity identity;
    identity.set_worker_id(absl::StrCat("worker-", worker));
    identity.set_incarnation("a");
    return identity;
  }
  Moment Next() {
    now_ += absl::Microseconds(10);
    return {absl::UnixEpoch() + now_, now_};
  }
  void Observe(const Observation& observation) { core_.Observe(observation, Next()); }
  void Decide(const Request& request) {
    core_.Decide(request, Next());
    core_.Commit();
  }
  void Upkeep() {
    do {
      core_.Upkeep(Next());
      core_.Commit();
    } while (core_.NeedsUpkeep());
  }
  void Submit(int number) {
    SubmitJob body;
    body.request.set_request_id(absl::StrCat("request-", number));
    body.request.mutable_spec()->mutable_resources()->set_device_kind("cpu");
    body.request.mutable_spec()->set_priority(number % 7);
    body.job_id = absl::StrCat("job-", number);
    Decide(body);
    Upkeep();
  }
  void Beat(int worker) {
    Heartbeat body;
    *body.request.mutable_worker() = Identity(worker);
    body.request.set_sequence(++sequence_);
    Observe(body);
    Upkeep();
  }
  template <typename Work>
  double Milliseconds(const std::string& name, Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    RecordProperty(name, absl::StrCat(taken.count()));
    std::cout << name << ": " << taken.count() << " ms\n";
    return taken.count();
  }

  Settings settings_;
  absl::Duration now_ = absl::Seconds(1);
  Core core_{settings_, {}, now_};
  int64_t sequence_ = 0;
};

TEST_F(LoadTest, EventsStayCheapWhenTheQueueIsFull) {
  EXPECT_LT(Milliseconds("ten thousand submits",
                         [this] {
                           for (int i = 0; i < kJobs; ++i) Submit(i);
                         }),
            20000);
  EXPECT_LT(Milliseconds("a plan over all of them", [this] { Beat(0); }), 500);
  EXPECT_LT(Milliseconds("a tick", [this] { Upkeep(); }), 10);
  EXPECT_EQ(core_.counters().attempts_started, 1);
  EXPECT_LT(Milliseconds("a thousand workers that connect",
                         [this] {
                           for (int worker = 1; worker < kWorkers; ++worker) Beat(worker);
                         }),
            10000);
  EXPECT_EQ(core_.counters().attempts_started, kWorkers);
  EXPECT_LT(Milliseconds("a heartbeat", [this] { Beat(1); }), 10);
}

}  // namespace
}  // namespace octavo::core
