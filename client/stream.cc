#include "client/stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/render/format.h"

namespace octavo::client {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(5);

}  // namespace

void Interruption::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

bool Interruption::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

bool Interruption::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopped_), duration);
}

void Interruption::Watch(grpc::ClientContext* context) {
  absl::MutexLock lock(&mutex_);
  context_ = context;
  if (stopped_ && context != nullptr) context->TryCancel();
}

void Reconnecting::Connected() {
  if (lost_since_ == absl::InfiniteFuture()) return;
  options_.notice(absl::StrCat("connected again to the coordinator at ", client_.server(),
                               " after ", FormatSpan(absl::Now() - lost_since_)));
  lost_since_ = absl::InfiniteFuture();
}

absl::Status Reconnecting::Broken(const absl::Status& why) {
  if (interruption_.stopped()) return absl::CancelledError("interrupted");
  if (!absl::IsUnavailable(why)) return why;
  if (lost_since_ == absl::InfiniteFuture()) {
    lost_since_ = absl::Now();
    pause_ = kFirstPause;
    options_.notice(absl::StrCat("lost the coordinator at ", client_.server(),
                                 "; trying again for up to ", FormatSpan(options_.patience)));
  }
  if (absl::Now() - lost_since_ >= options_.patience) return why;
  if (!interruption_.Pause(pause_)) return absl::CancelledError("interrupted");
  pause_ = std::min(2 * pause_, kLongestPause);
  return absl::OkStatus();
}

}  // namespace octavo::client
