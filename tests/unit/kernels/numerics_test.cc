// E4M3, E5M2, scale choice and BF16 rounding against models that share no code with them.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "kernels/ops/quantized.h"
#include "kernels/quantized_bytes.h"

namespace octavo::kernels {
namespace {

// A format as arXiv:2209.05433 tells it, in float64.
struct Format {
  Element element;
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  int largest_code;             // of a number
  bool IsNaN(int code) const {  // E5M2 keeps 0x7C for infinity
    return (code & 0x7F) > (element == Element::kE5M2 ? 0x7C : largest_code);
  }
  // The value of a code that is neither NaN nor infinite.
  double ValueOf(int code) const {
    const int exponent = (code & 0x7F) >> mantissa_bits;
    const double fraction = std::ldexp(code & ((1 << mantissa_bits) - 1), -mantissa_bits);
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                           : std::ldexp(1.0 + fraction, exponent - bias);
    return code >= 128 ? -magnitude : magnitude;
  }
  // The code of the nearest number, by looking at all of them; of two equally near the even code.
  int NearestCode(double x) const {
    if (std::isnan(x)) return 0x7F;
    const double magnitude = std::fmin(std::fabs(x), ValueOf(largest_code));
    int best = 0;
    for (int code = 1; code <= largest_code; ++code) {
      const double nearer =
          std::fabs(ValueOf(best) - magnitude) - std::fabs(ValueOf(code) - magnitude);
      if (nearer > 0 || (nearer == 0 && code % 2 == 0)) best = code;
    }
    return std::signbit(x) ? best | 0x80 : best;
  }
};

constexpr Format kE4m3 = {Element::kE4M3, "E4M3", 4, 3, 7, 0x7E};
constexpr Format kE5m2 = {Element::kE5M2, "E5M2", 5, 2, 15, 0x7B};

class Formats : public ::testing::TestWithParam<Format> {};

TEST_P(Formats, EveryBfloat16BecomesItsNearestCode) {
  const Format format = GetParam();
  for (int bits = 0; bits < 65536; ++bits) {
    const float x = ToFloat(bfloat16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(FloatToCode(format.element, x), format.NearestCode(static_cast<double>(x))) << x;
  }
}

TEST_P(Formats, NumbersBesideEveryMidpointRoundToTheirOwnSide) {
  const Format format = GetParam();
  const auto code_of = [&](float x) { return FloatToCode(format.element, x); };
  for (int code = 0; code < format.largest_code; ++code) {
    const auto middle = static_cast<float>((format.ValueOf(code) + format.ValueOf(code + 1)) / 2);
    EXPECT_EQ(code_of(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(code_of(std::nextafter(middle, 1e6f)), code + 1);
    EXPECT_EQ(code_of(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(code_of(-middle), code_of(middle) | 0x80);
  }
}

TEST_P(Formats, LargeNumbersAndInfinitySaturate) {
  const Format format = GetParam();
  const auto largest = static_cast<float>(format.ValueOf(format.largest_code));
  EXPECT_EQ(largest, std::ldexp(1.75f, LargestExponent(format.element)));
  for (const float x : {largest, std::nextafter(largest, 1e30f), largest * 1.07f, 1e30f,
                        std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(FloatToCode(format.element, x), format.largest_code) << x;
    EXPECT_EQ(FloatToCode(format.element, -x), format.largest_code | 0x80) << x;
  }
}

TEST_P(Formats, EveryCodeHasItsValueAndComesBack) {
  const Format format = GetParam();
  for (int code = 0; code < 256; ++code) {
    const float value = CodeToFloat(format.element, static_cast<uint8_t>(code));
    if (format.IsNaN(code)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(FloatToCode(format.element, value), 0x7F);
    } else if ((code & 0x7F) > format.largest_code) {
      EXPECT_TRUE(std::isinf(value)) << code;
      EXPECT_EQ(std::signbit(value), code >= 128);
    } else {
      EXPECT_EQ(static_cast<double>(value), format.ValueOf(code));
      EXPECT_EQ(std::signbit(value), code >= 128);
      EXPECT_EQ(FloatToCode(format.element, value), code);
    }
  }
  EXPECT_EQ(CodeToFloat(format.element, 1), std::ldexp(1.0f, SmallestExponent(format.element)));
}

// What the bound of GemmFp8 rests on.
TEST(Products, OfTwoNumbersAreExactInFloat32) {
  for (const Format& other : {kE4m3, kE5m2}) {
    for (int a = 0; a <= kE4m3.largest_code; ++a) {
      for (int b = 0; b <= other.largest_code; ++b) {
        const float product = CodeToFloat(Element::kE4M3, static_cast<uint8_t>(a)) *
                              CodeToFloat(other.element, static_cast<uint8_t>(b));
        ASSERT_EQ(static_cast<double>(product), kE4m3.ValueOf(a) * other.ValueOf(b));
      }
    }
  }
}

TEST_P(Formats, TheScaleIsTheLargestThatKeepsEveryAmaxWithinTheFormat) {
  const Format format = GetParam();
  const double largest = format.ValueOf(format.largest_code);
  for (int bits = 1; bits < 0x7F80; ++bits) {  // every positive BF16
    const float amax = ToFloat(bfloat16{static_cast<uint16_t>(bits)});
    const int exponent = ScaleExponent(amax, format.element);
    ASSERT_GE(exponent, -126);
    ASSERT_LE(exponent, 126);
    ASSERT_LE(std::ldexp(static_cast<double>(amax), exponent), largest) << amax;
    if (exponent < 126) {
      ASSERT_GT(std::ldexp(static_cast<double>(amax), exponent + 1), largest) << amax;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, Formats, ::testing::Values(kE4m3, kE5m2),
                         [](const auto& test) { return test.param.name; });

TEST(ScaleExponent, ScaleAndInverseAreFiniteAndNormalForAnyFloat) {
  constexpr float kNormal = std::numeric_limits<float>::min();
  for (int power = -149; power <= 127; ++power) {
    for (const double step : {1.0, 1.4, 1.75, 1.7500001, 1.9999999}) {
      const auto amax = static_cast<float>(std::ldexp(step, power));
      const int exponent = ScaleExponent(amax, Element::kE4M3);
      EXPECT_GE(PowerOfTwo(exponent), kNormal);
      EXPECT_GE(PowerOfTwo(-exponent), kNormal);
      EXPECT_EQ(PowerOfTwo(exponent) * PowerOfTwo(-exponent), 1.0f);
      EXPECT_EQ(ExponentOf(PowerOfTwo(exponent)), exponent);
    }
  }
}

TEST(ScaleExponent, IsZeroWithoutAFiniteAmax) {
  EXPECT_EQ(ScaleExponent(0.0f, Element::kE4M3), 0);
  EXPECT_EQ(ScaleExponent(std::numeric_limits<float>::infinity(), Element::kE5M2), 0);
  EXPECT_EQ(ScaleExponent(std::numeric_limits<float>::quiet_NaN(), Element::kE4M3), 0);
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
}

TEST(QuantizedSpec, CountsTheScalesOfItsTiles) {
  QuantizedSpec spec = {.rows = 576, .columns = 1537, .tile = Tile::k1x128, .role = Role::kA};
  EXPECT_EQ(spec.scales(), 576 * 13);
  spec.tile = Tile::k128x128;
  EXPECT_EQ(spec.scales(), 5 * 13);
  spec.tile = Tile::k1x32;
  EXPECT_EQ(spec.scales(), 576 * 49);
}

// Memory for the largest matrix takes every smaller one.
TEST(QuantizedBytes, NeverShrinkAsAMatrixGrowsAndHoldItsCodesAndScales) {
  for (const char* backend : {"cpu", "cuda"}) {
    for (const Tile tile : {Tile::k1x128, Tile::k128x128}) {
      const auto bytes = [&](int64_t rows, int64_t columns) {
        return QuantizedBytes(backend,
                              {.rows = rows, .columns = columns, .tile = tile, .role = Role::kA});
      };
      for (int64_t rows = 1; rows < 300; rows += 7) {
        for (int64_t columns = 1; columns < 700; columns += 13) {
          ASSERT_GE(bytes(rows + 1, columns), bytes(rows, columns)) << rows << "x" << columns;
          ASSERT_GE(bytes(rows, columns + 1), bytes(rows, columns)) << rows << "x" << columns;
          ASSERT_GE(bytes(rows, columns), rows * columns + 4 * TileCount(columns));
        }
      }
    }
  }
}

// cuBLASLt's rules (CUDA 13, "Scaling Factors Layouts"), by hand for 130 x 900: codes in rows of
// 912 bytes, of which there are 144.
TEST(QuantizedBytes, OfCudaAreThoseOfCublasLt) {
  QuantizedSpec spec = {.rows = 130, .columns = 900, .tile = Tile::k1x128, .role = Role::kA};
  EXPECT_EQ(cuda::CodeBytes(spec), 131328);
  EXPECT_EQ(QuantizedBytes("cuda", spec), 131328 + 4 * 8 * 144);
  spec.tile = Tile::k128x128;
  EXPECT_EQ(QuantizedBytes("cuda", spec), 131328 + 4 * 2 * 8);
  const cuda::QuantizedLayout blocks = cuda::LayoutOf({.spec = spec, .data = nullptr});
  EXPECT_EQ(blocks.ScaleAt(128, 7), 8 + 7);
  spec.tile = Tile::k1x128;
  const cuda::QuantizedLayout tiles = cuda::LayoutOf({.spec = spec, .data = nullptr});
  EXPECT_EQ(tiles.ScaleAt(129, 7), 7 * 144 + 129);
  EXPECT_EQ(tiles.CodeAt(1, 3), 915);
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
