#include "worker/engine/model/rope.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

TEST(RopeFrequencies, FallGeometrically) {
  const std::vector<double> frequencies = RopeFrequencies({.theta = 10000}, 8);
  ASSERT_EQ(frequencies.size(), 4u);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(frequencies[j], expected[j], 1e-15);
}

// Llama-3.2's published numbers split its 32 pairs 15 : 3 : 14.
TEST(RopeFrequencies, OfLlama3KeepShortWavesDivideLongOnesAndBlendBetween) {
  RopeConfig rope = {.theta = 500000};
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  rope = {.theta = 500000,
          .scaling = RopeConfig::Scaling::kLlama3,
          .factor = 32,
          .low_frequency_factor = 1,
          .high_frequency_factor = 4,
          .original_max_positions = 8192};
  const std::vector<double> scaled = RopeFrequencies(rope, 64);
  int kept = 0, divided = 0, blended = 0;
  for (size_t j = 0; j < plain.size(); ++j) {
    if (scaled[j] == plain[j]) {
      ++kept;
    } else if (scaled[j] == plain[j] / 32) {
      ++divided;
    } else {
      ++blended;
      EXPECT_LT(scaled[j], plain[j]);
      EXPECT_GT(scaled[j], plain[j] / 32);
    }
  }
  EXPECT_EQ(kept, 15);
  EXPECT_EQ(blended, 3);
  EXPECT_EQ(divided, 14);
}

// Qwen2.5 with YaRN: 4 times 32768 positions. 128 / 2 * ln(32768 / (2 pi turns)) / ln(1e6) is 23.6
// for 32 turns and 39.6 for 1.
TEST(RopeFrequencies, OfYarnGoOverFromPlainToDividedBetweenTwoPairs) {
  RopeConfig rope = {.theta = 1e6};
  const std::vector<double> plain = RopeFrequencies(rope, 128);
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = 4;
  rope.original_max_positions = 32768;
  const std::vector<double> scaled = RopeFrequencies(rope, 128);
  for (int j = 0; j <= 23; ++j) EXPECT_EQ(scaled[j], plain[j]) << j;
  for (int j = 40; j < 64; ++j) EXPECT_EQ(scaled[j], plain[j] / 4) << j;
  for (int j = 24; j < 40; ++j) {
    const double share = (j - 23) / 17.0;
    EXPECT_NEAR(scaled[j], plain[j] * (1 - 0.75 * share), 1e-12 * plain[j]) << j;
  }
}

TEST(MakeRopeTable, ScalesCosineAndSineByTheAttentionFactor) {
  const RopeTable table = MakeRopeTable({.theta = 10000, .attention_factor = 1.125}, 4, 1);
  EXPECT_EQ(table.cosine[0], 1.125f);
  EXPECT_EQ(table.sine[0], 0.0f);
}

TEST(MakeRopeTable, HoldsBfloat16NumbersOfEachPosition) {
  const RopeTable table = MakeRopeTable({.theta = 10000}, 4, 3);
  ASSERT_EQ(table.cosine.size(), 6u);
  EXPECT_EQ(table.cosine[0], 1.0f);
  EXPECT_EQ(table.sine[0], 0.0f);
  for (int position = 0; position < 3; ++position) {
    for (int j = 0; j < 2; ++j) {
      const double angle = position * std::pow(10000.0, -j / 2.0);
      EXPECT_NEAR(table.cosine[position * 2 + j], std::cos(angle), std::ldexp(1.0, -9));
      EXPECT_NEAR(table.sine[position * 2 + j], std::sin(angle), std::ldexp(1.0, -9));
    }
  }
  EXPECT_EQ(table.cosine[2], 0.5390625f);  // cos(1) = 0.5403 to 8 significant bits
}

}  // namespace
}  // namespace octavo::engine
