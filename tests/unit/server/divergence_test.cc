#include "server/telemetry/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/server_jobs.h"

namespace octavo::telemetry {
namespace {

using testing_support::Point;

MetricPoints Points(const std::vector<v1::MetricPoint>& points) {
  return {points.begin(), points.end()};
}

TEST(BaselinePoints, GivesTheBaselinesLossAndTheRelativeGapToIt) {
  const auto ledger = BaselinePoints(Points({Point("train/loss", 7, 2.5)}), {{7, 2.0}});
  ASSERT_EQ(ledger.size(), 2u);
  EXPECT_EQ(ledger[0].name(), "divergence/baseline_loss");
  EXPECT_EQ(ledger[0].value(), 2.0);
  EXPECT_EQ(ledger[1].name(), "divergence/baseline_ratio");
  EXPECT_DOUBLE_EQ(ledger[1].value(), 0.25);
  EXPECT_EQ(ledger[1].step(), 7);
  EXPECT_EQ(ledger[1].time_unix_ms(), 1700000000007);
}

TEST(BaselinePoints, IsNegativeWhereTheJobIsBetter) {
  const auto ledger = BaselinePoints(Points({Point("train/loss", 1, 1.5)}), {{1, 2.0}});
  EXPECT_DOUBLE_EQ(ledger.at(1).value(), -0.25);
}

TEST(BaselinePoints, LeavesOutOtherMetricsAndStepsThatTheBaselineDidNotReach) {
  EXPECT_TRUE(BaselinePoints(Points({Point("train/tokens", 1, 64), Point("train/loss", 2, 1.0)}),
                             {{1, 2.0}})
                  .empty());
}

TEST(BaselinePoints, HasNoRatioWhereThereIsNone) {
  EXPECT_EQ(BaselinePoints(Points({Point("train/loss", 1, NAN)}), {{1, 2.0}}).size(), 1u);
  EXPECT_EQ(BaselinePoints(Points({Point("train/loss", 1, 1.0)}), {{1, 0.0}}).size(), 1u);
  EXPECT_EQ(BaselinePoints(Points({Point("train/loss", 1, 1.0)}), {{1, NAN}}).size(), 0u);
}

}  // namespace
}  // namespace octavo::telemetry
