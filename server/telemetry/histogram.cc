#include "server/telemetry/histogram.h"

#include <algorithm>

namespace octavo::telemetry {

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

}  // namespace octavo::telemetry
