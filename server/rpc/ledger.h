// Adds the divergence ledger's points to what a trainer pushes, so that both are stored in one
// transaction.
#pragma once

#include "octavo/v1/worker.pb.h"
#include "server/loop/core_loop.h"

namespace octavo::rpc {

// Looks the baseline's losses up at the steps of `request` where its job names a baseline. A store
// that cannot be read is an error: the worker repeats the batch.
absl::Status AddBaselinePoints(const loop::CoreLoop::Context& context,
                               v1::PushMetricsRequest* request);

}  // namespace octavo::rpc
