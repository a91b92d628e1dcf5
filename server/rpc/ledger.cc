#include "server/rpc/ledger.h"

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "proto/support/metric_table.h"
#include "server/telemetry/divergence.h"

namespace octavo::rpc {

absl::Status AddBaselinePoints(const loop::CoreLoop::Context& context,
                               v1::PushMetricsRequest* request) {
  const core::JobPointer record = context.core.jobs().Find(request->lease().job_id());
  if (record == nullptr || record->job.spec().stages_size() == 0) return absl::OkStatus();
  const std::string& baseline = record->job.spec().stages(0).divergence().baseline_job();
  if (baseline.empty()) return absl::OkStatus();
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = 0;
  for (const v1::MetricPoint& point : request->points()) {
    if (point.name() != metric::kLoss) continue;
    first = std::min(first, point.step());
    last = std::max(last, point.step());
  }
  if (last == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto losses,
                   context.store.ReadCurve(baseline, metric::kLoss, first, last));
  for (v1::MetricPoint& point : telemetry::BaselinePoints(request->points(), losses)) {
    *request->add_points() = std::move(point);
  }
  return absl::OkStatus();
}

}  // namespace octavo::rpc
