#include "tests/simulation/universe.h"

#include <cstdio>

namespace octavo::simulation {
namespace {

constexpr size_t kLinesKept = 60;

bool IsCut(const Node& from, const Node& to) {
  return to.is_coordinator ? from.cut_to_coordinator : to.cut_from_coordinator;
}

}  // namespace

Universe::Universe(const Options& options)
    : random(options.seed), print_trace_(options.print_trace) {
  faults = DrawFaultPlan(&random);
  if (options.only_full_disk) faults = OnlyAFullDisk();
}

void Universe::Enqueue(absl::Duration at, std::function<void()> action) {
  queue_.emplace(std::pair(at, ++number_), std::move(action));
}

void Universe::AfterTrue(absl::Duration delay, std::function<void()> action) {
  Enqueue(now_ + delay, std::move(action));
}

void Universe::After(const Node& node, absl::Duration delay, std::function<void()> action) {
  Enqueue(now_ + delay / node.clock_rate,
          [this, &node, life = node.life, action = std::move(action)]() mutable {
            RunOn(node, life, std::move(action));
          });
}

void Universe::RunOn(const Node& node, int64_t life, std::function<void()> action) {
  if (node.life != life || !node.alive) return;
  if (now_ < node.paused_until) {
    Enqueue(node.paused_until, [this, &node, life, action = std::move(action)]() mutable {
      RunOn(node, life, std::move(action));
    });
    return;
  }
  action();
}

void Universe::Send(const Node& from, const Node& to, std::string what,
                    std::function<void()> deliver, Fate fate) {
  const int copies = random.Chance(faults.duplicate) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const absl::Duration delay = random.Between(absl::Milliseconds(1), faults.longest_delay);
    if (random.Chance(faults.drop) || IsCut(from, to) || !to.alive) {
      Trace("lost ", from.name, " -> ", to.name, " ", what);
      continue;
    }
    AfterTrue(delay,
              [this, &from, &to, what, deliver, fate, from_life = from.life, to_life = to.life] {
                const bool reset = fate == Fate::kDiesWithSender && from.life != from_life;
                if (IsCut(from, to) || reset)
                  return Trace("lost ", from.name, " -> ", to.name, " ", what);
                RunOn(to, to_life, [this, &from, &to, what, deliver] {
                  Trace(from.name, " -> ", to.name, " ", what);
                  deliver();
                });
              });
  }
}

bool Universe::Step() {
  if (queue_.empty() || violation_) return false;
  auto next = queue_.extract(queue_.begin());
  now_ = next.key().first;
  next.mapped()();
  return true;
}

void Universe::Heal() {
  const FaultPlan good;
  faults.drop = 0;
  faults.duplicate = 0;
  faults.longest_delay = good.longest_delay;
  faults.longest_sync = good.longest_sync;
  faults.failed_sync = 0;
  faults.trainer_crash = 0;
  healed_ = true;
  Trace("healed");
}

void Universe::Fail(const std::string& invariant, const std::string& message) {
  if (violation_) return;
  Trace("VIOLATED ", invariant, ": ", message);
  violation_ = Violation{invariant, message};
}

// FNV-1a, 64 bits.
void Universe::Record(const std::string& line) {
  for (const char c : line) {
    trace_hash_ = (trace_hash_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  if (print_trace_) std::printf("%s\n", line.c_str());
  last_lines_.push_back(line);
  if (last_lines_.size() > kLinesKept) last_lines_.pop_front();
}

}  // namespace octavo::simulation
