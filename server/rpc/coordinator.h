// octavod without its flags: data folder, store, core loop and gRPC server, wired together.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "prometheus/collectable.h"
#include "server/loop/core_loop.h"
#include "server/rpc/shell.h"

namespace grpc {
class Channel;
}

namespace octavo::rpc {

struct CoordinatorOptions {
  std::string data_dir;
  std::string listen = "127.0.0.1:7070";  // empty: in-process channels only
  int64_t store_max_bytes = 0;            // 0: as far as the disk goes
  int read_threads = 2;
  int64_t message_bytes_limit = int64_t{4} << 20;
  absl::Duration min_ping_interval = absl::Seconds(10);  // half of what our clients use
  absl::Duration keepalive = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  loop::CoreLoopOptions loop;
  ServiceLimits limits;
};

class Coordinator {
 public:
  // `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            const Clock* clock);
  virtual ~Coordinator() = default;

  // Host and port that gRPC listens on, the port chosen where 0 was asked for.
  virtual const std::string& address() const = 0;
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;
  // For a Prometheus exposer; it must be gone before the coordinator is.
  virtual std::shared_ptr<prometheus::Collectable> collectable() = 0;
};

}  // namespace octavo::rpc
