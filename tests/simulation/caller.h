// Unary calls as workers and clients make them: sent again until answered.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/simulation/coordinator.h"
#include "tests/simulation/universe.h"

namespace octavo::simulation {

class Caller {
 public:
  using Handler = std::function<void(const Answer&)>;

  Caller(Universe* universe, Coordinator* coordinator, const Node* node)
      : universe_(universe), coordinator_(coordinator), node_(node) {}

  // `handler` is called once, unless the call is cancelled. The answer to any of the tries counts.
  uint64_t Call(Event body, std::string what, Handler handler,
                Universe::Fate fate = Universe::Fate::kOutlivesSender);
  // Once, on a stream: not repeated. `handler` may never be called.
  void SendOnce(Event body, std::string what, Handler handler);
  void Cancel(uint64_t id) { calls_.erase(id); }
  void Clear() { calls_.clear(); }
  bool Idle() const { return calls_.empty(); }

 private:
  struct Pending {
    Event body;
    std::string what;
    Handler handler;
    Universe::Fate fate;
  };
  void Try(uint64_t id);

  Universe* const universe_;
  Coordinator* const coordinator_;
  const Node* const node_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Pending> calls_;
};

}  // namespace octavo::simulation
