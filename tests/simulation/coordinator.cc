#include "tests/simulation/coordinator.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::simulation {
namespace {

const absl::Time kStartOfTime = absl::FromUnixSeconds(1800000000);

template <typename T>
void MoveTo(std::vector<T>* from, std::vector<T>* to) {
  std::move(from->begin(), from->end(), std::back_inserter(*to));
}

}  // namespace

Coordinator::Coordinator(Universe* universe, const Options& options, Hooks hooks)
    : universe_(universe), options_(options), hooks_(std::move(hooks)) {
  node.name = "octavod";
  node.is_coordinator = true;
  Start();
}

// Nothing of what the core did since the last good transaction counts; everybody is told to ask
// again.
void Coordinator::StartOver() {
  universe_->Trace("a transaction of octavod fails");
  syncing_.reset();
  open_ = {};
  const std::map<core::Token, Reply> refused = std::exchange(replies_, {});
  for (const auto& [token, reply] : refused) {
    reply({token, absl::UnavailableError("the disk is full"), {}});
  }
  Load();
}

void Coordinator::Start() {
  node.alive = true;
  Load();
  TickLoop();
}

void Coordinator::Load() {
  core_ = core::Core::Create(options_.settings, disk.State(), kStartOfTime + universe_->now(),
                             universe_->Local(node));
  universe_->Trace("octavod reads ", disk.jobs.size(), " jobs");
  if (hooks_.started) hooks_.started();
}

void Coordinator::TickLoop() {
  universe_->After(node, options_.settings.heartbeat / 2, [this] {
    Receive(core::Tick{}, nullptr);
    TickLoop();
  });
}

void Coordinator::Receive(core::EventBody body, Reply reply) {
  core::Event event{.body = std::move(body)};
  if (auto* submit = std::get_if<core::SubmitJob>(&event.body)) {
    submit->job_id = absl::StrCat("job-", ++last_job_);
  }
  if (reply) {
    event.token = ++last_token_;
    replies_[event.token] = std::move(reply);
  }
  core::Effects effects =
      core_->Apply(event, kStartOfTime + universe_->now(), universe_->Local(node));
  if (options_.answers_before_durable) {
    Batch early;
    early.answers = std::exchange(effects.answers, {});
    Release(early);
  }
  MoveTo(&effects.writes, &open_.writes);
  MoveTo(&effects.answers, &open_.answers);
  MoveTo(&effects.signals, &open_.signals);
  if (!syncing_) Sync();
}

// One transaction at a time; what arrives meanwhile goes into the next one.
void Coordinator::Sync() {
  while (!open_.Empty()) {
    auto batch = std::make_unique<Batch>(std::exchange(open_, {}));
    if (batch->writes.empty()) {
      Release(*batch);
      continue;
    }
    syncing_ = std::move(batch);
    const absl::Duration taken =
        universe_->random.Between(absl::Microseconds(100), universe_->faults.longest_sync);
    universe_->After(node, taken, [this] {
      if (universe_->random.Chance(universe_->faults.failed_sync)) return StartOver();
      const std::unique_ptr<Batch> done = std::move(syncing_);
      MakeDurable(*done);
      Release(*done);
      if (!syncing_) Sync();
    });
    return;
  }
}

void Coordinator::MakeDurable(const Batch& batch) {
  for (const core::Write& write : batch.writes) {
    disk.Apply(write);
    if (hooks_.committed) hooks_.committed(write);
  }
}

void Coordinator::Release(const Batch& batch) {
  for (const core::Answer& answer : batch.answers) {
    const auto found = replies_.find(answer.token);
    if (found == replies_.end()) continue;
    const Reply reply = std::move(found->second);
    replies_.erase(found);
    reply(answer);
  }
  for (const core::Signal& signal : batch.signals) hooks_.signal(signal);
}

// A transaction that was under way is on the disk as a whole or not at all; nobody was told which.
// What was not yet begun is gone.
void Coordinator::Crash(absl::Duration outage) {
  if (!node.alive) return;
  const bool survived = syncing_ && universe_->random.Chance(0.5);
  universe_->Trace("octavod crashes", survived ? ", its transaction survives" : "");
  if (survived) MakeDurable(*syncing_);
  syncing_.reset();
  open_ = {};
  replies_.clear();
  core_.reset();
  ++node.life;
  node.alive = false;
  universe_->AfterTrue(outage, [this] { Start(); });
}

}  // namespace octavo::simulation
