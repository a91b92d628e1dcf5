// Conversions of the CPU's vector code against the scalar rules, on every variant.
#include "kernels/cpu/conversions.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kCounts[] = {1, 15, 16, 17, 127, 128, 129, 300};

class ConversionsOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(ConversionsOn);

TEST_P(ConversionsOn, RoundingAndWideningFollowTheScalarRule) {
  for (const int64_t count : kCounts) {
    std::vector<float> x = testing_support::Normal(count, 1, 1e20f);
    x[0] = -std::numeric_limits<float>::quiet_NaN();
    std::vector<bfloat16> rounded(x.size());
    RoundRow(x.data(), count, rounded.data());
    EXPECT_EQ(testing_support::Bits(rounded),
              testing_support::Bits(testing_support::ToBfloat16(x)));
    std::vector<float> wide(x.size());
    WidenRow(rounded.data(), count, wide.data());
    for (size_t i = 1; i < wide.size(); ++i) EXPECT_EQ(wide[i], ToFloat(rounded[i]));
  }
}

TEST_P(ConversionsOn, EveryCodeDecodesToItsValueTimesItsScale) {
  for (const Element element : {Element::kE4M3, Element::kE5M2}) {
    for (const int64_t columns : kCounts) {
      for (int first = 0; first < 256; first += 100) {
        std::vector<uint8_t> codes;
        for (int64_t c = 0; c < columns; ++c) codes.push_back(static_cast<uint8_t>(first + c));
        std::vector<float> scales;
        for (int64_t tile = 0; tile < TileCount(columns); ++tile)
          scales.push_back(PowerOfTwo(static_cast<int>(40 * tile) - 60));
        std::vector<float> wide(codes.size(), 7.0f);
        std::vector<bfloat16> narrow(codes.size());
        DecodeRow(element, codes.data(), scales.data(), columns, wide.data());
        DecodeRow(element, codes.data(), scales.data(), columns, narrow.data());
        for (size_t c = 0; c < codes.size(); ++c) {
          const float want = CodeToFloat(element, codes[c]) * scales[c / 128];
          if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(wide[c]) && std::isnan(ToFloat(narrow[c]))) << int{codes[c]};
          } else {
            EXPECT_EQ(wide[c], want) << int{codes[c]};
            EXPECT_EQ(ToFloat(narrow[c]), want) << int{codes[c]};
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::kernels::cpu
