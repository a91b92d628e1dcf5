#include "tests/simulation/caller.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::simulation {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(2);

// A full queue or disk may have room later.
bool IsTriedAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

}  // namespace

uint64_t Caller::Call(Event body, std::string what, Handler handler, Universe::Fate fate) {
  const uint64_t id = ++last_id_;
  calls_[id] = {std::move(body), std::move(what), std::move(handler), fate};
  Try(id);
  return id;
}

void Caller::Try(uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  const Pending& call = found->second;
  const auto answer = [this, id](const Answer& given) {
    const auto waiting = calls_.find(id);
    if (waiting == calls_.end() || IsTriedAgain(given.status())) return;
    const Handler handler = std::move(waiting->second.handler);
    calls_.erase(waiting);
    handler(given);
  };
  universe_->Send(
      *node_, coordinator_->node, call.what,
      [this, body = call.body, what = call.what, answer] {
        coordinator_->Receive(body, [this, what, answer](const Answer& given) {
          universe_->Send(coordinator_->node, *node_,
                          absl::StrCat(what, " answered ", given.status().ToString()),
                          [answer, given] { answer(given); });
        });
      },
      call.fate);
  universe_->After(*node_, kTimeout, [this, id] { Try(id); });
}

void Caller::SendOnce(Event body, std::string what, Handler handler) {
  universe_->Send(*node_, coordinator_->node, what, [this, body, what, handler] {
    coordinator_->Receive(body, [this, what, handler](const Answer& given) {
      universe_->Send(coordinator_->node, *node_,
                      absl::StrCat(what, " answered ", given.status().ToString()),
                      [handler, given] { handler(given); });
    });
  });
}

}  // namespace octavo::simulation
