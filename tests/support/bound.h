// How much of its stated error bound a result uses: |got - want| / bound, at most 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace octavo::testing_support {

class BoundShare {
 public:
  // Equal numbers and two NaNs use nothing; any other difference from a zero bound, and NaN on one
  // side, uses infinitely much.
  void Add(double got, double want, double bound) {
    const int64_t at = count_++;
    double share = 0;
    if (std::isnan(got) || std::isnan(want)) {
      share = std::isnan(got) && std::isnan(want) ? 0 : std::numeric_limits<double>::infinity();
    } else if (got != want) {
      share = bound > 0 ? std::fabs(got - want) / bound : std::numeric_limits<double>::infinity();
    }
    if (share <= largest_) return;
    largest_ = share;
    at_ = at;
    got_ = got;
    want_ = want;
  }
  double largest() const { return largest_; }

  // For EXPECT_TRUE; says where the largest share is. `name` appears in the test's record.
  ::testing::AssertionResult Holds(const char* name) const {
    ::testing::Test::RecordProperty(name, std::to_string(largest_));
    if (count_ > 0 && largest_ <= 1) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << name << " uses " << largest_ << " of its bound, at element " << at_ << " of "
           << count_ << ": got " << got_ << ", want " << want_;
  }

 private:
  double largest_ = 0;
  int64_t count_ = 0;
  int64_t at_ = -1;
  double got_ = 0;
  double want_ = 0;
};

}  // namespace octavo::testing_support
