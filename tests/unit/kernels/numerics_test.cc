// E4M3, scale choice and BF16 rounding against models that share no code with them.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/numerics/e4m3.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels {
namespace {

// The value of a code as the format defines it.
double ValueOf(int code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return code >= 128 ? -magnitude : magnitude;
}

// The code of the nearest number, by looking at all of them; of two equally near the even code.
int NearestCode(double x) {
  if (std::isnan(x)) return 0x7F;
  const double magnitude = std::fmin(std::fabs(x), 448.0);
  int best = 0;
  for (int code = 1; code <= 0x7E; ++code) {
    const double nearer =
        std::fabs(ValueOf(best) - magnitude) - std::fabs(ValueOf(code) - magnitude);
    if (nearer > 0 || (nearer == 0 && code % 2 == 0)) best = code;
  }
  return std::signbit(x) ? best | 0x80 : best;
}

TEST(E4m3, EveryBfloat16BecomesItsNearestCode) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float x = ToFloat(bfloat16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(FloatToE4m3(x), NearestCode(static_cast<double>(x))) << x;
  }
}

TEST(E4m3, NumbersBesideEveryMidpointRoundToTheirOwnSide) {
  for (int code = 0; code < 0x7E; ++code) {
    const auto middle = static_cast<float>((ValueOf(code) + ValueOf(code + 1)) / 2);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 1000.0f)), code + 1);
    EXPECT_EQ(FloatToE4m3(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(FloatToE4m3(-middle), FloatToE4m3(middle) | 0x80);
  }
}

TEST(E4m3, LargeNumbersAndInfinitySaturate) {
  for (const float x : {448.0f, 449.0f, 464.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(FloatToE4m3(x), 0x7E) << x;
    EXPECT_EQ(FloatToE4m3(-x), 0xFE) << x;
  }
}

TEST(E4m3, EveryCodeHasItsValueAndComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = E4m3ToFloat(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(FloatToE4m3(value), kE4m3NaN);
    } else {
      EXPECT_EQ(static_cast<double>(value), ValueOf(code));
      EXPECT_EQ(FloatToE4m3(value), code);
    }
  }
}

TEST(ScaleExponent, IsTheLargestThatKeepsEveryAmaxWithinTheFormat) {
  for (int bits = 1; bits < 0x7F80; ++bits) {  // every positive BF16
    const float amax = ToFloat(bfloat16{static_cast<uint16_t>(bits)});
    const int exponent = ScaleExponent(amax);
    ASSERT_GE(exponent, -126);
    ASSERT_LE(exponent, 126);
    ASSERT_LE(std::ldexp(static_cast<double>(amax), exponent), 448.0) << amax;
    if (exponent < 126) {
      ASSERT_GT(std::ldexp(static_cast<double>(amax), exponent + 1), 448.0) << amax;
    }
  }
}

TEST(ScaleExponent, ScaleAndInverseAreFiniteAndNormalForAnyFloat) {
  constexpr float kNormal = std::numeric_limits<float>::min();
  for (int power = -149; power <= 127; ++power) {
    for (const double step : {1.0, 1.4, 1.75, 1.7500001, 1.9999999}) {
      const auto amax = static_cast<float>(std::ldexp(step, power));
      const int exponent = ScaleExponent(amax);
      EXPECT_GE(PowerOfTwo(exponent), kNormal);
      EXPECT_GE(PowerOfTwo(-exponent), kNormal);
      EXPECT_EQ(PowerOfTwo(exponent) * PowerOfTwo(-exponent), 1.0f);
      EXPECT_EQ(ExponentOf(PowerOfTwo(exponent)), exponent);
    }
  }
}

TEST(ScaleExponent, IsZeroWithoutAFiniteAmax) {
  EXPECT_EQ(ScaleExponent(0.0f), 0);
  EXPECT_EQ(ScaleExponent(std::numeric_limits<float>::infinity()), 0);
  EXPECT_EQ(ScaleExponent(std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(TileStatistics, IgnoreNaNAndKeepInfinity) {
  TileStatistics tile;
  tile.Add(-3.0f);
  tile.Add(std::numeric_limits<float>::quiet_NaN());
  tile.Add(2.0f);
  EXPECT_EQ(tile.amax, 3.0f);
  tile.Add(-std::numeric_limits<float>::infinity());
  tile.Add(4.0f);
  EXPECT_TRUE(std::isinf(tile.amax));
}

TEST(TileShapes, CountRaggedEdges) {
  EXPECT_EQ(TileCount(1), 1);
  EXPECT_EQ(TileCount(128), 1);
  EXPECT_EQ(TileCount(129), 2);
  EXPECT_EQ(TileCount(576), 5);
  EXPECT_EQ(TileScales(3, 576), 15);
  EXPECT_EQ(BlockScales(576, 1536), 60);
}

TEST(Bfloat16, EveryFloatBetweenTwoNeighboursGoesToTheNearer) {
  for (int bits = 0; bits < 0x7F7F; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle = ToFloat(bfloat16{low}) / 2 + ToFloat(bfloat16{high}) / 2;
    const float magnitude = std::numeric_limits<float>::max();
    ASSERT_EQ(ToBfloat16(middle).bits, low % 2 == 0 ? low : high);
    ASSERT_EQ(ToBfloat16(std::nextafter(middle, 0.0f)).bits, low);
    ASSERT_EQ(ToBfloat16(std::nextafter(middle, magnitude)).bits, high);
    ASSERT_EQ(ToBfloat16(ToFloat(bfloat16{low})).bits, low);
  }
}

TEST(Bfloat16, OverflowBecomesInfinityAndNaNStaysQuiet) {
  EXPECT_EQ(ToBfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  FloatBits signalling;
  signalling.bits = 0xFF800001u;
  EXPECT_EQ(ToBfloat16(signalling.value).bits, 0xFFC0);
}

}  // namespace
}  // namespace octavo::kernels
