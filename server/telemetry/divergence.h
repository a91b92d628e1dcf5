// The divergence ledger: what training in FP8 costs, measured against a finished job while
// training.
//
//   divergence/baseline_loss[s]  = loss of the baseline job at step s
//   divergence/baseline_ratio[s] = (loss[s] - baseline_loss[s]) / baseline_loss[s]
#pragma once

#include <map>
#include <vector>

#include "octavo/v1/metric.pb.h"

namespace octavo::telemetry {

using MetricPoints = google::protobuf::RepeatedPtrField<v1::MetricPoint>;

// The ledger's points for every `train/loss` in `points` whose step `baseline_losses` knows, with
// the time of that loss. A step is left out where the baseline's loss is not finite, and its ratio
// where that is not (a loss that is not finite, a baseline of zero).
std::vector<v1::MetricPoint> BaselinePoints(const MetricPoints& points,
                                            const std::map<int64_t, double>& baseline_losses);

}  // namespace octavo::telemetry
