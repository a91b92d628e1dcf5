#include "proto/support/metric_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/match.h"

namespace octavo {
namespace {

TEST(MetricTable, NamesAndPrometheusNamesAreUniqueAndDocumented) {
  std::set<std::string> names;
  for (const MetricRow& row : MetricTable()) {
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_TRUE(names.insert(std::string(row.prometheus)).second) << row.prometheus;
    EXPECT_TRUE(absl::StartsWith(row.prometheus, "octavo_")) << row.prometheus;
    EXPECT_FALSE(row.help.empty()) << row.name;
  }
}

TEST(MetricTable, PrometheusNamesEndInTheirUnit) {
  for (const MetricRow& row : MetricTable()) {
    for (const char* unit : {"seconds", "bytes", "ratio", "steps"}) {
      if (row.unit == unit) {
        EXPECT_TRUE(absl::EndsWith(row.prometheus, unit)) << row.prometheus;
      }
    }
  }
}

TEST(FindMetric, AnUnknownNameIsNull) {
  EXPECT_EQ(FindMetric("train/lost"), nullptr);
  EXPECT_EQ(FindMetric(metric::kLoss)->unit, "nats");
}

}  // namespace
}  // namespace octavo
