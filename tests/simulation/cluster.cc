#include "tests/simulation/cluster.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariant.h"

namespace octavo::simulation {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;

core::Settings SmallSettings() {
  core::Settings settings;
  settings.max_pending_jobs = 12;  // so that clients meet the limit
  return settings;
}

}  // namespace

Cluster::Cluster(Universe* the_universe, const Flaws& flaws)
    : universe(the_universe), invariants_(AllInvariants()) {
  const core::Settings settings = SmallSettings();
  coordinator = std::make_unique<Coordinator>(
      universe,
      Coordinator::Options{.settings = settings,
                           .answers_before_durable = flaws.answers_before_durable},
      Coordinator::Hooks{.signal = [this](const core::Signal& signal) { Signal(signal); },
                         .committed =
                             [this](const core::Write& write) {
                               for (const auto& invariant : invariants_)
                                 invariant->Committed(*this, write);
                             },
                         .started =
                             [this] {
                               if (coordinator == nullptr)
                                 return;  // the first start, from an empty disk
                               for (const auto& invariant : invariants_)
                                 invariant->CoordinatorStarted(*this);
                             },
                         .heartbeat =
                             [this](const absl::Status& status, absl::Duration waited) {
                               for (const auto& invariant : invariants_)
                                 invariant->HeartbeatAnswered(*this, status, waited);
                             }});
  MakeWorkers(flaws, settings);
  MakeClients();
  const double drift = universe->faults.clock_drift;
  const auto rate = [&] { return 1 - drift + 2 * drift * universe->random.Fraction(); };
  coordinator->node.clock_rate = rate();
  for (const auto& worker : workers) worker->node.clock_rate = rate();
}

Cluster::~Cluster() = default;

void Cluster::MakeWorkers(const Flaws& flaws, const core::Settings& settings) {
  const int64_t count = universe->random.Between(1, 4);
  for (int64_t i = 0; i < count; ++i) {
    std::vector<v1::Device> devices;
    for (int64_t index = 0; index < (i == 0 ? 2 : universe->random.Between(1, 2)); ++index) {
      v1::Device& device = devices.emplace_back();
      device.set_kind(i == 0 && index == 1 ? "gpu" : "cpu");
      device.set_index(static_cast<int32_t>(i == 0 ? 0 : index));
      // The first worker has the largest devices, so that every job fits somewhere.
      device.set_memory_bytes((i == 0 ? 8 : universe->random.Between(1, 8)) * kGibibyte);
    }
    workers.push_back(std::make_unique<Worker>(
        Worker::Environment{universe, coordinator.get(), &storage, &ledger, settings, flaws},
        absl::StrCat("worker-", i), devices));
  }
}

Client::Plan Cluster::DrawClientPlan(int number) {
  Random& random = universe->random;
  Client::Plan plan;
  plan.request_id = absl::StrCat("request-", number);
  plan.spec.set_priority(static_cast<int32_t>(random.Between(-1, 1)));
  plan.spec.mutable_resources()->set_device_kind(random.Chance(0.2) ? "gpu" : "cpu");
  plan.spec.mutable_retries()->set_max_restarts(
      random.Chance(0.3) ? static_cast<int32_t>(random.Between(0, 2)) : 20);
  v1::Stage& stage = *plan.spec.add_stages();
  stage.set_steps(random.Between(3, random.Chance(0.5) ? 40 : 150));
  stage.mutable_checkpoint()->set_every_steps(random.Between(2, 8));
  stage.mutable_checkpoint()->set_keep(static_cast<int32_t>(random.Between(1, 3)));
  plan.memory_bytes = random.Between(0, 8) * kGibibyte;
  plan.submit_after = random.Between(absl::Milliseconds(1), absl::Seconds(90));
  plan.asks_again = random.Chance(0.2);
  plan.asks_for_another = random.Chance(0.1);
  plan.cancels = random.Chance(0.15);
  plan.cancel_after = random.Between(absl::Milliseconds(1), absl::Seconds(20));
  return plan;
}

void Cluster::MakeClients() {
  const int64_t count = universe->random.Between(4, 24);
  for (int i = 0; i < count; ++i) {
    clients.push_back(
        std::make_unique<Client>(universe, coordinator.get(), &ledger, DrawClientPlan(i)));
  }
}

void Cluster::Signal(const core::Signal& signal) {
  for (const auto& worker : workers) {
    if (worker->node.name != signal.worker.worker_id()) continue;
    Worker* const receiver = worker.get();
    universe->Send(coordinator->node, receiver->node,
                   absl::StrCat("Session ", signal.message.ShortDebugString()),
                   [receiver, signal] { receiver->OnSignal(signal.worker, signal.message); });
  }
}

void Cluster::Repeat(absl::Duration mean, absl::Duration until, std::function<void()> fault) {
  if (mean == absl::InfiniteDuration()) return;
  const absl::Duration wait = mean * -std::log(1 - universe->random.Fraction());
  if (universe->now() + wait >= until) return;
  universe->AfterTrue(wait, [this, mean, until, fault = std::move(fault)] {
    fault();
    Repeat(mean, until, fault);
  });
}

Node* Cluster::AnyNode() {
  const int64_t chosen = universe->random.Between(0, static_cast<int64_t>(workers.size()));
  return chosen == 0 ? &coordinator->node : &workers[static_cast<size_t>(chosen - 1)]->node;
}

void Cluster::Partition(absl::Duration until) {
  Random& random = universe->random;
  Node* const node = &random.Choose(workers)->node;
  const int64_t way = random.Between(0, 2);
  node->cut_to_coordinator = way != 1;
  node->cut_from_coordinator = way != 0;
  universe->Trace("cut off ", node->name, way != 1 ? " to" : "", way != 0 ? " from" : "",
                  " the coordinator");
  const absl::Duration length =
      random.Between(absl::Milliseconds(10), universe->faults.longest_partition);
  universe->AfterTrue(std::min(length, until - universe->now()),
                      [node] { node->cut_to_coordinator = node->cut_from_coordinator = false; });
}

void Cluster::ScheduleFaults(absl::Duration until) {
  Random& random = universe->random;
  const FaultPlan& faults = universe->faults;
  const auto outage = [&random, &faults] {
    return random.Between(absl::Milliseconds(1), faults.longest_outage);
  };
  Repeat(faults.worker_crash_every, until,
         [this, &random, outage] { random.Choose(workers)->Crash(outage()); });
  Repeat(faults.coordinator_crash_every, until, [this, outage] { coordinator->Crash(outage()); });
  Repeat(faults.disk_full_every, until, [this, &random, &faults, until] {
    const absl::Duration length = random.Between(absl::Seconds(1), faults.longest_disk_full);
    coordinator->FillDisk(std::min(universe->now() + length, until));
  });
  Repeat(faults.partition_every, until, [this, until] { Partition(until); });
  Repeat(faults.pause_every, until, [this, &random, &faults, until] {
    Node* const node = AnyNode();
    const absl::Duration length = random.Between(absl::Milliseconds(10), faults.longest_pause);
    node->paused_until = std::max(node->paused_until, std::min(universe->now() + length, until));
    universe->Trace("pause of ", node->name, " until ", absl::FormatDuration(node->paused_until));
  });
}

void Cluster::Heal() { universe->Heal(); }

bool Cluster::Finished() const {
  const auto done = [](const auto& client) { return client->Done(); };
  const auto ended = [](const auto& entry) { return IsTerminal(entry.second->job); };
  return std::all_of(clients.begin(), clients.end(), done) &&
         std::all_of(coordinator->disk.jobs.begin(), coordinator->disk.jobs.end(), ended);
}

std::string Cluster::Unfinished() const {
  std::string text;
  for (const auto& client : clients) {
    if (!client->Done()) absl::StrAppend(&text, "client ", client->node.name, "; ");
  }
  for (const auto& [id, record] : coordinator->disk.jobs) {
    if (!IsTerminal(record->job)) absl::StrAppend(&text, record->job.ShortDebugString(), "; ");
  }
  return text;
}

void Cluster::AfterEvent() {
  for (const auto& invariant : invariants_) invariant->AfterEvent(*this);
}

void Cluster::AtEnd() {
  for (const auto& invariant : invariants_) invariant->AtEnd(*this);
}

}  // namespace octavo::simulation
