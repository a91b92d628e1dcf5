#include "tests/simulation/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::simulation {
namespace {

const absl::Time kStartOfTime = absl::FromUnixSeconds(1800000000);

}  // namespace

class Coordinator::NodeClock final : public Clock {
 public:
  explicit NodeClock(const Coordinator* coordinator) : coordinator_(*coordinator) {}
  absl::Time Now() const override { return kStartOfTime + coordinator_.universe_->now(); }
  absl::Duration Monotonic() const override {
    return std::max(coordinator_.Local(), coordinator_.busy_until_);
  }

 private:
  const Coordinator& coordinator_;
};

class Coordinator::Store final : public storage::Store {
 public:
  explicit Store(Coordinator* coordinator) : coordinator_(*coordinator) {}
  absl::StatusOr<core::DurableState> Load() override { return coordinator_.disk.State(); }
  absl::Status Commit(absl::Span<const core::Write> writes) override {
    return coordinator_.Commit(writes);
  }
  absl::StatusOr<std::map<int64_t, double>> ReadCurve(const std::string&, absl::string_view,
                                                      int64_t, int64_t) override {
    return std::map<int64_t, double>();
  }

 private:
  Coordinator& coordinator_;
};

class Coordinator::Sink final : public loop::SessionSink {
 public:
  Sink(Coordinator* coordinator, v1::WorkerIdentity worker)
      : coordinator_(*coordinator), worker_(std::move(worker)) {}
  void Send(v1::SessionResponse message) override {
    coordinator_.AfterCommit([this, signal = core::Signal{worker_, std::move(message)}] {
      coordinator_.hooks_.signal(signal);
    });
  }

 private:
  Coordinator& coordinator_;
  const v1::WorkerIdentity worker_;
};

Coordinator::Coordinator(Universe* universe, const Options& options, Hooks hooks)
    : universe_(universe),
      options_(options),
      hooks_(std::move(hooks)),
      clock_(std::make_unique<NodeClock>(this)) {
  node.name = "octavod";
  node.is_coordinator = true;
  Start();
}

Coordinator::~Coordinator() {
  ++node.life;  // nobody hears what the loop answers in its end
}

absl::Duration Coordinator::Local() const { return universe_->Local(node); }

const core::Core* Coordinator::core() const {
  const core::Core* core = nullptr;
  if (loop_ != nullptr) loop_->Read([&](const core::Core& present) { core = &present; });
  return core;
}

void Coordinator::Start() {
  node.alive = true;
  woken_ = false;
  busy_until_ = -absl::InfiniteDuration();
  auto loop = loop::CoreLoop::Open({.core = options_.settings}, std::make_unique<Store>(this),
                                   clock_.get());
  CHECK(loop.ok());
  loop_ = *std::move(loop);
  universe_->Trace("octavod reads ", disk.jobs.size(), " jobs");
  if (hooks_.started) hooks_.started();
  TickLoop();
}

void Coordinator::TickLoop() {
  universe_->After(node, options_.settings.heartbeat / 2, [this] {
    Wake();
    TickLoop();
  });
}

// The next pass, once the thread is out of its transactions.
void Coordinator::Wake() {
  if (std::exchange(woken_, true)) return;
  universe_->After(node, std::max(busy_until_ - Local(), absl::ZeroDuration()), [this] {
    woken_ = false;
    if (loop_->Pass()) Wake();
  });
}

void Coordinator::AfterCommit(std::function<void()> action) {
  const absl::Duration left = busy_until_ - Local();
  if (left <= absl::ZeroDuration() || options_.answers_before_durable) return action();
  universe_->After(node, left, std::move(action));
}

Coordinator::Reply Coordinator::Watched(Reply reply) {
  return [this, reply = std::move(reply), received = Local(),
          began = universe_->now()](const Answer& answer) {
    if (node.paused_until <= began) hooks_.heartbeat(answer.status(), Local() - received);
    if (reply) reply(answer);
  };
}

void Coordinator::Receive(Event event, Reply reply) {
  auto* const observation = std::get_if<core::Observation>(&event);
  const bool heartbeat =
      observation != nullptr && std::holds_alternative<core::Heartbeat>(*observation);
  if (heartbeat) reply = Watched(std::move(reply));
  loop::CoreLoop::Answered answered(
      [this, reply = std::move(reply), life = node.life](const Answer& answer) {
        if (!reply || node.life != life) return;
        AfterCommit([reply, answer] { reply(answer); });
      });
  if (observation != nullptr) {
    Observe(std::move(*observation), std::move(answered));
  } else {
    auto& request = std::get<core::Request>(event);
    if (auto* submit = std::get_if<core::SubmitJob>(&request)) {
      submit->job_id = absl::StrCat("job-", ++last_job_);
    }
    loop_->Decide(std::move(request), {}, std::move(answered));
  }
  Wake();
}

// A heartbeat is its worker's session, as a closed one is the end of it.
void Coordinator::Observe(core::Observation observation, loop::CoreLoop::Answered answered) {
  loop_->Observe(
      [this, observation = std::move(observation)](
          loop::CoreLoop::Context& context) -> absl::StatusOr<core::Observation> {
        if (const auto* beat = std::get_if<core::Heartbeat>(&observation)) {
          const v1::WorkerIdentity& worker = beat->request.worker();
          auto& sink = sinks_[{worker.worker_id(), worker.incarnation()}];
          if (sink == nullptr) sink = std::make_shared<Sink>(this, worker);
          context.sessions.Open(worker, sink);
        }
        return observation;
      },
      {}, std::move(answered));
}

void Coordinator::FillDisk(absl::Duration until) {
  universe_->Trace("the disk is full until ", absl::FormatDuration(until));
  full_until_ = std::max(full_until_, until);
}

absl::Status Coordinator::Commit(absl::Span<const core::Write> writes) {
  busy_until_ = clock_->Monotonic() +
                universe_->random.Between(absl::Microseconds(100), universe_->faults.longest_sync);
  if (universe_->now() < full_until_ || universe_->random.Chance(universe_->faults.failed_sync)) {
    universe_->Trace("a transaction of octavod fails");
    return absl::ResourceExhaustedError("the disk is full");
  }
  staged_.emplace_back(writes.begin(), writes.end());
  universe_->After(node, busy_until_ - Local(), [this] {
    const std::vector<core::Write> done = std::move(staged_.front());
    staged_.pop_front();
    MakeDurable(done);
  });
  return absl::OkStatus();
}

void Coordinator::MakeDurable(const std::vector<core::Write>& writes) {
  for (const core::Write& write : writes) {
    disk.Apply(write);
    if (hooks_.committed) hooks_.committed(write);
  }
}

// A transaction that was under way is on the disk as a whole or not at all; nobody was told which.
// What was not yet begun is gone.
void Coordinator::Crash(absl::Duration outage) {
  if (!node.alive) return;
  const bool survived = !staged_.empty() && universe_->random.Chance(0.5);
  universe_->Trace("octavod crashes", survived ? ", its transaction survives" : "");
  if (survived) MakeDurable(staged_.front());
  staged_.clear();
  ++node.life;
  node.alive = false;
  loop_.reset();
  sinks_.clear();
  universe_->AfterTrue(outage, [this] { Start(); });
}

}  // namespace octavo::simulation
