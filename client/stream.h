// Server streams that outlive their connection.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace octavo::client {

// Ends, from any thread, what another one waits for.
class Interruption {
 public:
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool stopped() const ABSL_LOCKS_EXCLUDED(mutex_);
  // False at once when stopped.
  bool Pause(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  // Cancels `context` on Stop, until another one or null takes its place.
  void Watch(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

struct Reconnect {
  absl::Duration patience = absl::Minutes(5);  // without a coordinator
  std::function<void(const std::string&)> notice = [](const std::string&) {};
};

// Decides, after a stream broke, whether and when to open it again; tells so.
class Reconnecting {
 public:
  Reconnecting(const Client& client, const Reconnect& options, Interruption* interruption)
      : client_(client), options_(options), interruption_(*interruption) {}

  // A message arrived.
  void Connected();
  // OK: open it again. Anything else is the end: what broke it, or CANCELLED.
  absl::Status Broken(const absl::Status& why);

 private:
  const Client& client_;
  const Reconnect& options_;
  Interruption& interruption_;
  absl::Time lost_since_ = absl::InfiniteFuture();
  absl::Duration pause_;
};

// Reads the stream that `open` starts to its end. `open` is asked again after a break and continues
// where the messages so far ended. CANCELLED when interrupted.
template <typename Message>
absl::Status FollowStream(
    Client* client, const Reconnect& options, Interruption* interruption,
    const std::function<std::unique_ptr<grpc::ClientReader<Message>>(grpc::ClientContext*)>& open,
    const std::function<void(const Message&)>& receive) {
  Reconnecting reconnecting(*client, options, interruption);
  while (true) {
    grpc::ClientContext context;
    interruption->Watch(&context);
    const std::unique_ptr<grpc::ClientReader<Message>> reader = open(&context);
    for (Message message; reader->Read(&message);) {
      reconnecting.Connected();
      receive(message);
    }
    const grpc::Status finished = reader->Finish();
    interruption->Watch(nullptr);
    const absl::Status status = client->ToStatus(finished, context);
    if (status.ok()) return status;
    if (absl::Status end = reconnecting.Broken(status); !end.ok()) return end;
  }
}

}  // namespace octavo::client
