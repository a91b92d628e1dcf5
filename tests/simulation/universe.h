// Time, machines and the lines between them, in one thread. Everything that happens is an event in
// one queue ordered by (time, number); every choice comes from one generator. So a seed is a run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/simulation/fault_plan.h"
#include "tests/simulation/random.h"

namespace octavo::simulation {

// Something with a clock of its own that can be paused, cut off and killed.
struct Node {
  std::string name;
  bool is_coordinator = false;
  double clock_rate = 1;  // local seconds per true second
  absl::Duration paused_until = absl::ZeroDuration();
  int64_t life = 0;  // grows at every crash: what belonged to an older one never happens
  bool alive = true;
  bool cut_to_coordinator = false;
  bool cut_from_coordinator = false;
};

struct Violation {
  std::string invariant;
  std::string message;
};

class Universe {
 public:
  // Draws what may go wrong, unless it is only the disk.
  struct Options {
    uint64_t seed = 0;
    bool print_trace = false;
    bool only_full_disk = false;
  };
  explicit Universe(const Options& options);

  // After `delay` on the node's clock, unless the node died meanwhile; later if it is paused.
  void After(const Node& node, absl::Duration delay, std::function<void()> action);
  // After `delay` of true time, whatever happens: for the faults themselves.
  void AfterTrue(absl::Duration delay, std::function<void()> action);

  enum class Fate {
    kOutlivesSender,  // bytes already on the line
    kDiesWithSender,  // a connection that is reset
  };
  // Over the line to or from the coordinator: maybe never, maybe twice, maybe late. A receiver that
  // died meanwhile never sees it.
  void Send(const Node& from, const Node& to, std::string what, std::function<void()> deliver,
            Fate fate = Fate::kOutlivesSender);

  // Runs the next event. False when none is left or an invariant was violated.
  bool Step();

  absl::Duration now() const { return now_; }
  absl::Duration Local(const Node& node) const { return absl::Hours(1) + now_ * node.clock_rate; }
  // From here on lines are good and nothing dies.
  void Heal();
  bool healed() const { return healed_; }

  template <typename... Parts>
  void Trace(const Parts&... parts) {
    Record(absl::StrCat(absl::FormatDuration(now_), " ", parts...));
  }
  void Fail(const std::string& invariant, const std::string& message);
  const std::optional<Violation>& violation() const { return violation_; }
  uint64_t trace_hash() const { return trace_hash_; }
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  int64_t events() const { return number_; }

  Random random;
  FaultPlan faults;

 private:
  void Enqueue(absl::Duration at, std::function<void()> action);
  // Runs `action` once the node is not paused, if it still lives that life.
  void RunOn(const Node& node, int64_t life, std::function<void()> action);
  void Record(const std::string& line);

  const bool print_trace_;
  absl::Duration now_ = absl::ZeroDuration();
  bool healed_ = false;
  uint64_t number_ = 0;
  std::map<std::pair<absl::Duration, uint64_t>, std::function<void()>> queue_;
  std::optional<Violation> violation_;
  uint64_t trace_hash_ = 14695981039346656037u;
  std::deque<std::string> last_lines_;
};

}  // namespace octavo::simulation
