// octavod as the simulation sees it: the real core behind a disk that takes time, over lines that
// fail.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/core/core.h"
#include "tests/simulation/universe.h"
#include "tests/support/durable_map.h"

namespace octavo::simulation {

class Coordinator {
 public:
  using Reply = std::function<void(const core::Answer&)>;
  struct Hooks {
    std::function<void(const core::Signal&)> signal;    // towards the worker
    std::function<void(const core::Write&)> committed;  // became durable
    std::function<void()> started;                      // a core was built from the disk
  };
  struct Options {
    core::Settings settings;
    bool answers_before_durable = false;  // a planted bug
  };

  Coordinator(Universe* universe, const Options& options, Hooks hooks);

  // Called on delivery of a message; `reply` is called when the answer may leave. May be null.
  void Receive(core::EventBody body, Reply reply);
  void Crash(absl::Duration outage);

  Node node;
  testing_support::DurableMap disk;
  // Null while it is down. May be ahead of the disk.
  const core::Core* core() const { return core_.get(); }
  bool Idle() const { return !syncing_ && open_.Empty(); }  // disk and memory agree

 private:
  struct Batch {
    std::vector<core::Write> writes;
    std::vector<core::Answer> answers;
    std::vector<core::Signal> signals;
    bool Empty() const { return writes.empty() && answers.empty() && signals.empty(); }
  };
  void Start();
  void Load();
  void TickLoop();
  void Sync();
  void MakeDurable(const Batch& batch);
  void Release(const Batch& batch);
  void StartOver();

  Universe* const universe_;
  const Options options_;
  const Hooks hooks_;
  std::unique_ptr<core::Core> core_;
  Batch open_;                      // of events since the running transaction began
  std::unique_ptr<Batch> syncing_;  // the running transaction
  core::Token last_token_ = 0;
  int64_t last_job_ = 0;  // the source of fresh ids, outside any process
  std::map<core::Token, Reply> replies_;
};

}  // namespace octavo::simulation
