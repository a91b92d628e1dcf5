#include "worker/agent/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace octavo::agent {
namespace {

// A coordinator that answers none of so many heartbeats, and for so long, is taken for gone.
constexpr int kSilentHeartbeats = 5;
constexpr absl::Duration kSilence = absl::Seconds(5);
constexpr absl::Duration kLongestBackoff = absl::Seconds(5);

// Trying again would be answered alike.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

}  // namespace

Session::Session(Coordinator* coordinator, SessionDelegate* delegate, const Clock* clock,
                 Backoff::Options backoff, uint64_t seed)
    : coordinator_(coordinator), delegate_(delegate), clock_(clock), backoff_(backoff, seed) {}

void Session::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Session::Poke() {
  absl::MutexLock lock(&mutex_);
  poked_ = true;
}

void Session::RegisterAnew() {
  absl::MutexLock lock(&mutex_);
  register_anew_ = true;
}

bool Session::TakeRegisterAnew() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(register_anew_, false);
}

void Session::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

bool Session::AwaitStop(absl::Duration time_limit) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&stopping_), time_limit);
}

void Session::Run() {
  bool was_connected = true;  // so that the first failure is told
  do {
    absl::Duration heartbeat;
    absl::Status status;
    if (!RegisterOnce(&heartbeat, &status)) return delegate_->Rejected(status);
    if (status.ok()) {
      LogInfo("registered with the coordinator");
      was_connected = true;
      status = HoldStream(heartbeat);
      if (TakeRegisterAnew()) continue;
    }
    if (was_connected && !AwaitStop(absl::ZeroDuration())) {
      LogWarning("no connection to the coordinator: ", status.message(), "; trying again");
    }
    was_connected = false;
  } while (!AwaitStop(backoff_.Next()));
}

bool Session::RegisterOnce(absl::Duration* heartbeat, absl::Status* status) {
  TakeRegisterAnew();  // what is asked for is made now
  const std::optional<v1::RegisterWorkerRequest> request = delegate_->MakeRegistration();
  if (!request.has_value()) {
    *status = absl::UnavailableError("this worker has no device to offer");
    return true;
  }
  const auto response = coordinator_->Register(*request);
  *status = response.status();
  if (!response.ok()) return !IsFinal(response.status());
  delegate_->Registered(*response);
  // Leases start anew with a coordinator that starts anew: whoever comes back within a third of
  // one keeps its jobs.
  if (response->lease_ms() > 0) {
    backoff_.LimitTo(std::min(kLongestBackoff, absl::Milliseconds(response->lease_ms()) / 3));
  }
  *heartbeat = std::max(absl::Milliseconds(response->heartbeat_ms()), absl::Milliseconds(10));
  return true;
}

absl::Status Session::HoldStream(absl::Duration heartbeat) {
  grpc::ClientContext context;
  const std::unique_ptr<Coordinator::Stream> stream = coordinator_->OpenSession(&context);
  {
    absl::MutexLock lock(&mutex_);
    reading_ = true;
    last_answer_ = clock_->Monotonic();
  }
  std::thread reader([this, &stream] { ReadStream(stream.get()); });
  do {
    if (!stream->Write(delegate_->MakeHeartbeat())) break;
  } while (AwaitNextHeartbeat(heartbeat));
  if (StreamIsOpen()) context.TryCancel();  // else its own status says why it ended
  reader.join();
  return FromGrpc(stream->Finish());
}

void Session::ReadStream(Coordinator::Stream* stream) {
  v1::SessionResponse response;
  while (stream->Read(&response)) {
    backoff_.Reset();
    delegate_->Received(response);
    absl::MutexLock lock(&mutex_);
    last_answer_ = clock_->Monotonic();
  }
  absl::MutexLock lock(&mutex_);
  reading_ = false;
}

bool Session::StreamIsOpen() {
  absl::MutexLock lock(&mutex_);
  return reading_;
}

bool Session::AwaitNextHeartbeat(absl::Duration heartbeat) {
  absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || poked_ || register_anew_ || !reading_;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&due), heartbeat);
  poked_ = false;
  const absl::Duration patience = std::max(kSilence, heartbeat * kSilentHeartbeats);
  return !stopping_ && !register_anew_ && reading_ && clock_->Monotonic() - last_answer_ < patience;
}

}  // namespace octavo::agent
