// Counts of observations by upper bound, in the form Prometheus scrapes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace octavo::telemetry {

// Plain data: copy it to hand it to another thread.
class Histogram {
 public:
  // `bounds` ascend; an implicit last bucket takes what lies above them.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // per bucket, not cumulated
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace octavo::telemetry
