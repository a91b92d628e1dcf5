// octavod as the simulation sees it: its real loop and core, over a disk that takes time and fails,
// behind lines that fail.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "server/loop/core_loop.h"
#include "tests/simulation/universe.h"
#include "tests/support/durable_map.h"

namespace octavo::simulation {

using Event = std::variant<core::Observation, core::Request>;
using Answer = absl::StatusOr<core::AnswerBody>;

class Coordinator {
 public:
  using Reply = std::function<void(const Answer&)>;
  struct Hooks {
    std::function<void(const core::Signal&)> signal;    // towards the worker
    std::function<void(const core::Write&)> committed;  // became durable
    std::function<void()> started;                      // a core was built from the disk
    // A heartbeat was answered after so long on the coordinator's clock, pauses left out.
    std::function<void(const absl::Status&, absl::Duration waited)> heartbeat;
  };
  struct Options {
    core::Settings settings;
    bool answers_before_durable = false;  // a planted bug
  };

  Coordinator(Universe* universe, const Options& options, Hooks hooks);
  ~Coordinator();

  // Called on delivery of a message; `reply` is called when the answer leaves. May be null.
  void Receive(Event event, Reply reply);
  void Crash(absl::Duration outage);
  // No transaction succeeds before `until`, in true time.
  void FillDisk(absl::Duration until);

  Node node;
  testing_support::DurableMap disk;
  // Null while it is down. May be ahead of the disk.
  const core::Core* core() const;
  bool Idle() const { return staged_.empty(); }  // disk and memory agree

 private:
  class NodeClock;
  class Store;
  class Sink;

  void Start();
  void TickLoop();
  void Wake();
  absl::Status Commit(absl::Span<const core::Write> writes);
  void MakeDurable(const std::vector<core::Write>& writes);
  void AfterCommit(std::function<void()> action);
  Reply Watched(Reply reply);
  void Observe(core::Observation observation, loop::CoreLoop::Answered answered);
  absl::Duration Local() const;

  Universe* const universe_;
  const Options options_;
  const Hooks hooks_;
  const std::unique_ptr<NodeClock> clock_;
  std::unique_ptr<loop::CoreLoop> loop_;
  bool woken_ = false;
  // A pass takes no time but that of its transactions: until then, on its own clock, its thread is
  // in them, and what it says leaves after.
  absl::Duration busy_until_;
  absl::Duration full_until_;                    // true time
  std::deque<std::vector<core::Write>> staged_;  // transactions that are not over yet
  int64_t last_job_ = 0;                         // the source of fresh ids, outside any process
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Sink>> sinks_;
};

}  // namespace octavo::simulation
