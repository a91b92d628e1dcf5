#include "server/telemetry/latest_metrics.h"

#include "proto/support/metric_table.h"

namespace octavo::telemetry {

void LatestMetrics::Update(const std::string& job_id, const std::vector<v1::MetricPoint>& points) {
  LatestOfJob& job = jobs_[job_id];
  for (const v1::MetricPoint& point : points) {
    const MetricRow* row = FindMetric(point.name());
    if (row == nullptr) continue;
    job.values[row->name] = point.value();
    job.step = point.step();
    job.time_unix_ms = point.time_unix_ms();
  }
}

}  // namespace octavo::telemetry
