#include "server/rpc/session.h"

#include <deque>
#include <memory>
#include <utility>

#include "server/loop/subscriptions.h"
#include "server/rpc/checks.h"
#include "server/rpc/unary.h"

namespace octavo::rpc {
namespace {

// Reads the next heartbeat only once the core has answered the last one, so a worker that floods
// waits for itself.
class Session final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>,
                      public loop::SessionSink,
                      public std::enable_shared_from_this<Session> {
 public:
  explicit Session(Shell& shell) : shell_(shell) {}

  Session* Launch(std::shared_ptr<Session> self) {
    self_ = std::move(self);
    StartRead(&request_);  // under the hold that holds_ begins with
    return this;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return EndRead(absl::OkStatus());
    if (absl::Status status = CheckHeartbeat(request_); !status.ok()) return EndRead(status);
    const bool first = worker_.worker_id().empty();
    if (first) worker_ = request_.worker();
    if (request_.worker().worker_id() != worker_.worker_id() ||
        request_.worker().incarnation() != worker_.incarnation()) {
      return EndRead(absl::InvalidArgumentError(
          "a session belongs to one worker; open another for another identity"));
    }
    loop::CoreLoop::Answered answered(
        [self = shared_from_this()](absl::StatusOr<core::AnswerBody> answer) {
          if (answer.ok()) {
            self->StartRead(&self->request_);
          } else {
            self->EndRead(answer.status());
          }
        });
    const loop::CoreLoop::Cost cost = {.deadline = absl::InfiniteDuration(),
                                       .bytes = static_cast<int64_t>(request_.ByteSizeLong())};
    shell_.loop->Observe(
        [self = shared_from_this(), first,
         heartbeat = core::Heartbeat{request_}](loop::CoreLoop::Context& context) {
          if (first) context.sessions.Open(self->worker_, self);
          return heartbeat;
        },
        cost, std::move(answered));
  }

  // A worker that does not read loses the oldest: everything the core signals is repeated with the
  // next heartbeat.
  void Send(v1::SessionResponse message) override {
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      if (outgoing_.size() >= shell_.limits.session_queue_limit) outgoing_.pop_front();
      outgoing_.push_back(std::move(message));
      if (writing_) return;
      TakeNext();
      ++holds_;
    }
    StartWrite(&written_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) End(absl::CancelledError("the worker went away"));
    bool more = false;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      more = !ended_ && !outgoing_.empty();
      if (more) TakeNext();
    }
    if (more) {
      StartWrite(&written_);
    } else {
      Release();
    }
  }

  void OnCancel() override { End(absl::CancelledError("the session was cancelled")); }

  void OnDone() override {
    if (!worker_.worker_id().empty()) Close();
    self_ = nullptr;
  }

 private:
  void TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    written_ = std::move(outgoing_.front());
    outgoing_.pop_front();
  }

  // The core hears of it unless the worker has opened another session meanwhile.
  void Close() {
    shell_.loop->Observe(
        [worker = worker_,
         sink = self_](loop::CoreLoop::Context& context) -> absl::StatusOr<core::Observation> {
          if (!context.sessions.Close(worker, sink.get())) {
            return absl::CancelledError("another session took over");
          }
          return core::SessionClosed{worker};
        },
        {}, loop::CoreLoop::Answered(nullptr));
  }

  // The chain of reads and heartbeats is over.
  void EndRead(const absl::Status& status) {
    End(status);
    Release();
  }

  void Release() {
    {
      absl::MutexLock lock(&mutex_);
      if (--holds_ > 0 || !ended_) return;
    }
    FinishNow();
  }

  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      ended_ = true;
      status_ = status;
      if (holds_ > 0) return;
    }
    FinishNow();
  }

  void FinishNow() {
    shell_.counters->Count("WorkerService/Session", status_.code());
    Finish(ToGrpc(status_));
  }

  Shell& shell_;
  std::shared_ptr<Session> self_;
  v1::SessionRequest request_;   // owned by gRPC while it reads
  v1::WorkerIdentity worker_;    // set by the first heartbeat
  v1::SessionResponse written_;  // owned by gRPC while writing_
  absl::Status status_;          // set once, by who sets ended_

  absl::Mutex mutex_;
  std::deque<v1::SessionResponse> outgoing_ ABSL_GUARDED_BY(mutex_);
  // Finishing waits for every hold, since gRPC takes no operation after it. The reads hold one from
  // the first to the last, heartbeats that wait for the core included: an end that comes from
  // another thread between a read and its heartbeat would finish under their feet. A cancelled
  // stream fails its open read, so this hold always ends. A write under way holds another.
  int holds_ ABSL_GUARDED_BY(mutex_) = 1;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* StartSession(Shell& shell) {
  auto session = std::make_shared<Session>(shell);
  return session->Launch(session);
}

}  // namespace octavo::rpc
