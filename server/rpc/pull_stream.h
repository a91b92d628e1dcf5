// A server stream that fetches its next message only when it can send one: a slow reader costs one
// message of memory.
//
// States: pulling (Pull was called and owes one of Deliver, Rest, End), writing, resting, ended. It
// starts pulling.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/shell.h"
#include "server/rpc/unary.h"

namespace octavo::rpc {

template <typename Message>
class PullStream : public grpc::ServerWriteReactor<Message> {
 public:
  PullStream(Shell& shell, const char* method) : shell_(shell), method_(method) {}

  void OnWriteDone(bool ok) final {
    if (!ok) return End(absl::CancelledError("the client went away"));
    {
      absl::MutexLock lock(&mutex_);
      state_ = State::kPulling;
      kicked_ = false;
    }
    Pull();
  }

  void OnCancel() final {
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
      if (state_ != State::kResting) return;
      state_ = State::kPulling;
    }
    End(absl::CancelledError("the call was cancelled"));
  }

  void OnDone() final {
    --shell_.open_streams;
    self_ = nullptr;
  }

  // gRPC's hold on the stream, until OnDone; `self` owns this. Call once, before anything else.
  grpc::ServerWriteReactor<Message>* Launch(std::shared_ptr<PullStream> self) {
    self_ = std::move(self);
    // A copy of the pointer: Begin may end the call, and OnDone then runs on another thread.
    PullStream* const stream = this;
    const std::shared_ptr<PullStream> alive = self_;
    if (++shell_.open_streams > shell_.limits.stream_limit) {
      End(absl::ResourceExhaustedError(absl::StrCat("stream-limit of ", shell_.limits.stream_limit,
                                                    " open streams is reached; try again later")));
    } else {
      Begin();
    }
    return stream;
  }

 protected:
  // Ends with Rest or End, perhaps later and on another thread.
  virtual void Begin() = 0;
  // Never called while another Pull is unanswered.
  virtual void Pull() = 0;

  void Deliver(Message message) {
    bool cancelled;
    {
      absl::MutexLock lock(&mutex_);
      cancelled = cancelled_;
      if (!cancelled) state_ = State::kWriting;
    }
    if (cancelled) return End(absl::CancelledError("the call was cancelled"));
    message_ = std::move(message);
    this->StartWrite(&message_);
  }

  // Nothing to send until the next Kick.
  void Rest() {
    bool again = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!cancelled_) {
        again = std::exchange(kicked_, false);
        state_ = again ? State::kPulling : State::kResting;
        if (!again) return;
      }
    }
    again ? Pull() : End(absl::CancelledError("the call was cancelled"));
  }

  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      state_ = State::kEnded;
    }
    shell_.counters->Count(method_, status.code());
    this->Finish(ToGrpc(status));
  }

  // There may be something to send.
  void Kick() {
    {
      absl::MutexLock lock(&mutex_);
      kicked_ = true;
      if (state_ != State::kResting) return;
      kicked_ = false;
      state_ = State::kPulling;
    }
    Pull();
  }

  Shell& shell() { return shell_; }

 private:
  enum class State { kPulling, kWriting, kResting, kEnded };

  Shell& shell_;
  const char* const method_;
  std::shared_ptr<PullStream> self_;
  Message message_;  // owned by gRPC while writing, else by whoever pulls

  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kPulling;
  bool kicked_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::rpc
