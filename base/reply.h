// An answer that is always given: a Reply that is dropped answers INTERNAL, so no caller waits for
// a forgotten one.
#pragma once

#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace octavo {

// Move-only; Finish at most once. `done` runs on the thread that finishes.
template <typename Response>
class Reply {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

  explicit Reply(Done done) : done_(std::move(done)) {}
  Reply(Reply&& other) noexcept : done_(std::exchange(other.done_, nullptr)) {}
  Reply& operator=(Reply&& other) noexcept {
    Drop();
    done_ = std::exchange(other.done_, nullptr);
    return *this;
  }
  ~Reply() { Drop(); }

  void Finish(absl::StatusOr<Response> result) {
    if (done_) std::exchange(done_, nullptr)(std::move(result));
  }

 private:
  void Drop() { Finish(absl::InternalError("the request was dropped without an answer")); }
  Done done_;
};

}  // namespace octavo
