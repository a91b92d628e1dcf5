#include "server/telemetry/divergence.h"

#include <cmath>

#include "proto/support/metric_table.h"

namespace octavo::telemetry {
namespace {

v1::MetricPoint PointLike(const v1::MetricPoint& loss, absl::string_view name, double value) {
  v1::MetricPoint point = loss;
  point.set_name(std::string(name));
  point.set_value(value);
  return point;
}

}  // namespace

std::vector<v1::MetricPoint> BaselinePoints(const MetricPoints& points,
                                            const std::map<int64_t, double>& baseline_losses) {
  std::vector<v1::MetricPoint> ledger;
  for (const v1::MetricPoint& point : points) {
    if (point.name() != metric::kLoss) continue;
    const auto baseline = baseline_losses.find(point.step());
    if (baseline == baseline_losses.end() || !std::isfinite(baseline->second)) continue;
    ledger.push_back(PointLike(point, metric::kBaselineLoss, baseline->second));
    const double ratio = (point.value() - baseline->second) / baseline->second;
    if (std::isfinite(ratio)) ledger.push_back(PointLike(point, metric::kBaselineRatio, ratio));
  }
  return ledger;
}

}  // namespace octavo::telemetry
