// The newest value of every metric of the jobs that are exported to Prometheus. Belongs to one
// thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "octavo/v1/metric.pb.h"

namespace octavo::telemetry {

struct LatestOfJob {
  std::map<absl::string_view, double> values;  // by MetricRow.name, which lives for ever
  int64_t step = 0;                            // of the newest point
  int64_t time_unix_ms = 0;                    // of the newest point
};

class LatestMetrics {
 public:
  // Points of one job, older first. Names that are not in the metric table are dropped.
  void Update(const std::string& job_id, const std::vector<v1::MetricPoint>& points);
  void Forget(const std::string& job_id) { jobs_.erase(job_id); }
  const std::map<std::string, LatestOfJob>& jobs() const { return jobs_; }

 private:
  std::map<std::string, LatestOfJob> jobs_;
};

}  // namespace octavo::telemetry
