#include "worker/engine/checkpoint/random_weights.h"

#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

std::vector<float> Normal(uint64_t seed, const std::string& name, int64_t first, size_t count) {
  std::vector<float> values(count);
  FillNormal(seed, name, first, absl::MakeSpan(values));
  return values;
}

TEST(FillNormal, IsAFunctionOfSeedNameAndIndex) {
  const std::vector<float> whole = Normal(7, "w", 0, 101);
  for (const int64_t cut : {1, 2, 37, 100}) {
    const std::vector<float> rest = Normal(7, "w", cut, 101 - static_cast<size_t>(cut));
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + cut)) << "cut at " << cut;
  }
  // From the formulas alone: SHA-256, SplitMix and Box-Muller in Python. A seed must stand for the
  // same model on every machine and in every version.
  EXPECT_NEAR(whole[0], 0.5686936879701432, 1e-7);
  EXPECT_NEAR(whole[1], -0.5288391738283544, 1e-7);
  EXPECT_NE(Normal(8, "w", 0, 4), Normal(7, "w", 0, 4));
  EXPECT_NE(Normal(7, "v", 0, 4), Normal(7, "w", 0, 4));
}

// Moments of 10^6 samples: mean within 5 standard errors of 1e-3, variance within 5 of sqrt(2) *
// 1e-3, kurtosis within 5 of sqrt(24) * 1e-3; pairs of one Box-Muller draw are uncorrelated.
TEST(FillNormal, IsStandardNormal) {
  const std::vector<float> values = Normal(1, "model.embed_tokens.weight", 0, 1'000'000);
  double sum = 0, squares = 0, fourths = 0, pairs = 0;
  for (size_t i = 0; i < values.size(); i += 2) {
    pairs += static_cast<double>(values[i]) * values[i + 1];
  }
  for (const double x : values) {
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  const double n = 1e6;
  EXPECT_NEAR(sum / n, 0, 5e-3);
  EXPECT_NEAR(squares / n, 1, 5 * 1.42e-3);
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96.0) * 1e-3);
  EXPECT_NEAR(pairs / (n / 2), 0, 5 * 1.42e-3);
}

}  // namespace
}  // namespace octavo::engine
