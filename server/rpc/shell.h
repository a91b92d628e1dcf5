// What every service handler works with.
#pragma once

#include <atomic>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "server/loop/core_loop.h"
#include "server/rpc/blocking_pool.h"
#include "server/telemetry/rpc_counters.h"

namespace octavo::rpc {

struct ServiceLimits {
  absl::Duration unary_timeout = absl::Seconds(60);  // longer deadlines, and none, count as this
  absl::Duration inspection_timeout = absl::Seconds(60);
  int64_t stream_limit = 1000;      // open WatchJob, StreamMetrics and TailLogs calls together
  size_t session_queue_limit = 64;  // messages that wait for a worker to read them
};

struct Shell {
  loop::CoreLoop* loop;
  BlockingPool* pool;
  const Clock* clock;
  telemetry::RpcCounters* counters;
  ServiceLimits limits;
  std::atomic<int64_t> open_streams = 0;
};

}  // namespace octavo::rpc
