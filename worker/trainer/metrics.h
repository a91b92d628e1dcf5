// Metric points of a step, under the names of proto/support/metric_table.h.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "octavo/v1/metric.pb.h"
#include "worker/engine/engine.h"

namespace octavo::trainer {

// Values that are not finite are left out: the log line of the step says what happened.
std::vector<v1::MetricPoint> MakeMetricPoints(const engine::StepReport& report, absl::Time now);

// "step 12/100 loss 3.2104 gradient norm 1.02 rate 1.0e-04 812 tokens/s", for people.
std::string DescribeStep(const engine::StepReport& report, int64_t steps);

}  // namespace octavo::trainer
