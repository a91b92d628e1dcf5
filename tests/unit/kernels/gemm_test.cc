// FP8 matrix products against float64, within the bound of kernels/ops/matmul.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/quantized_layout.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "tests/support/device.h"
#include "tests/support/numbers.h"
#include "tests/support/pitched.h"
#include "tests/support/product.h"
#include "tests/support/quantized.h"

namespace octavo::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::Addends;
using testing_support::Device;
using testing_support::Operand;
using testing_support::Share;

// Codes with scales chosen by `exponent(row or block row, tile)`: scale_inv = 2^exponent.
struct Fp8Operand {
  Tile tile;
  Element element;
  testing_support::PlainQuantized plain;
  Operand value;

  QuantizedSpec Spec(Role role) const {
    return {.rows = value.rows, .columns = value.k, .element = element, .tile = tile, .role = role};
  }
};

Fp8Operand RandomFp8(int64_t rows, int64_t k, Tile tile, unsigned seed,
                     const std::function<int(int64_t, int64_t)>& exponent,
                     Element element = Element::kE4M3) {
  Fp8Operand result = {
      .tile = tile, .element = element, .plain = {}, .value = {.x = {}, .rows = rows, .k = k}};
  const QuantizedSpec spec = result.Spec(Role::kA);
  for (int64_t line = 0; line < spec.scale_rows(); ++line)
    for (int64_t column = 0; column < spec.scale_columns(); ++column)
      result.plain.scale_inv.push_back(PowerOfTwo(exponent(line, column)));
  const std::vector<float> numbers = testing_support::Normal(rows * k, seed, 60.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < k; ++c) {
      const uint8_t code = FloatToCode(element, numbers[static_cast<size_t>(row * k + c)]);
      const int64_t line = tile == Tile::k1x128 ? row : row / 128;
      const float scale =
          result.plain.scale_inv[static_cast<size_t>(line * TileCount(k) + c / 128)];
      result.plain.codes.push_back(code);
      result.value.x.push_back(static_cast<double>(CodeToFloat(element, code)) *
                               static_cast<double>(scale));
    }
  }
  return result;
}

QuantizedTensor Put(Device* device, const Fp8Operand& operand, Role role) {
  return testing_support::PutQuantized(device, operand.Spec(role), operand.plain);
}

std::vector<double> RunFp8(const Fp8Operand& a, const Fp8Operand& b, ResultType type,
                           const std::vector<bfloat16>& bias = {}) {
  Device device;
  const int64_t count = a.value.rows * b.value.rows;
  GemmFp8 op = {.a = Put(&device, a, Role::kA),
                .b = Put(&device, b, Role::kB),
                .bias = bias.empty() ? nullptr : device.Put(bias),
                .c = nullptr,
                .c_type = type,
                .accumulate = false};
  if (type == ResultType::kFloat32) {
    auto* const c = device.Make<float>(count);
    op.c = c;
    EXPECT_TRUE(device->Run(op).ok());
    return testing_support::ToDouble(device.Get(c, count));
  }
  auto* const c = device.Make<bfloat16>(count);
  op.c = c;
  EXPECT_TRUE(device->Run(op).ok());
  return testing_support::ToDouble(device.Get(c, count));
}

int Mild(int64_t line, int64_t tile) { return static_cast<int>((line * 7 + tile * 3) % 9) - 4; }

class Fp8Shapes : public ::testing::TestWithParam<int64_t> {};

TEST_P(Fp8Shapes, StayWithinTheirBoundInBothTypesAndGranularities) {
  const int64_t size = GetParam();
  for (const int64_t k : {int64_t{1}, int64_t{33}, int64_t{129}, int64_t{320}}) {
    const Fp8Operand a = RandomFp8(size, k, Tile::k1x128, 1, Mild);
    const Fp8Operand tiles = RandomFp8(33, k, Tile::k1x128, 2, Mild);
    const Fp8Operand blocks = RandomFp8(130, k, Tile::k128x128, 3, Mild);
    for (const ResultType type : {ResultType::kFloat32, ResultType::kBfloat16}) {
      EXPECT_TRUE(Share(a.value, tiles.value, RunFp8(a, tiles, type), type).Holds("tiles"));
      EXPECT_TRUE(Share(a.value, blocks.value, RunFp8(a, blocks, type), type).Holds("blocks"));
      EXPECT_TRUE(Share(blocks.value, a.value, RunFp8(blocks, a, type), type).Holds("swapped"));
    }
  }
}

TEST_P(Fp8Shapes, StayWithinTheirBoundWithE5m2OnEitherSide) {
  const int64_t size = GetParam();
  for (const int64_t k : {int64_t{1}, int64_t{33}, int64_t{320}}) {
    const Fp8Operand a = RandomFp8(size, k, Tile::k1x128, 1, Mild, Element::kE5M2);
    const Fp8Operand blocks = RandomFp8(130, k, Tile::k128x128, 3, Mild);
    for (const ResultType type : {ResultType::kFloat32, ResultType::kBfloat16}) {
      EXPECT_TRUE(Share(a.value, blocks.value, RunFp8(a, blocks, type), type).Holds("first"));
      EXPECT_TRUE(Share(blocks.value, a.value, RunFp8(blocks, a, type), type).Holds("second"));
    }
    Fp8Operand misread = a;  // the same bytes as E4M3: the bound must notice
    misread.element = Element::kE4M3;
    EXPECT_GT(Share(a.value, blocks.value, RunFp8(misread, blocks, ResultType::kFloat32),
                    ResultType::kFloat32)
                  .largest(),
              1);
  }
}

INSTANTIATE_TEST_SUITE_P(Ragged, Fp8Shapes, ::testing::Values(1, 31, 32, 33, 127, 128, 129));

TEST(GemmFp8, TilesWhoseScalesDifferByTwoToTheTenAreNotConfused) {
  const auto steep = [](int64_t line, int64_t tile) {
    return static_cast<int>((line + tile) % 2) * 10;
  };
  const Fp8Operand a = RandomFp8(5, 384, Tile::k1x128, 1, steep);
  const Fp8Operand b = RandomFp8(6, 384, Tile::k1x128, 2, steep);
  const std::vector<double> got = RunFp8(a, b, ResultType::kFloat32);
  EXPECT_TRUE(Share(a.value, b.value, got, ResultType::kFloat32).Holds("steep"));

  Fp8Operand swapped = RandomFp8(5, 384, Tile::k1x128, 1,
                                 [&](int64_t line, int64_t tile) { return steep(line, tile + 1); });
  EXPECT_GT(Share(swapped.value, b.value, got, ResultType::kFloat32).largest(), 1);
}

// The operand in the CPU backend's layout.
std::vector<uint8_t> LaidOut(const Fp8Operand& operand) {
  const QuantizedSpec spec = operand.Spec(Role::kA);
  std::vector<uint8_t> bytes(static_cast<size_t>(cpu::QuantizedBytes(spec)));
  std::copy(operand.plain.codes.begin(), operand.plain.codes.end(), bytes.begin());
  std::memcpy(bytes.data() + cpu::ScalesOffset(spec), operand.plain.scale_inv.data(),
              operand.plain.scale_inv.size() * sizeof(float));
  return bytes;
}

// What a processor without BF16 products gets: codes are decoded to float32.
TEST(GemmFp8, StaysWithinItsBoundWhereProductsAreFloat32) {
  cpu::Memory memory(0);
  auto matmul = cpu::Matmul::Create(&memory, cpu::Operands::kFloat32);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  cpu::Scratch a_scratch(&memory);
  cpu::Scratch b_scratch(&memory);
  const Fp8Operand a = RandomFp8(33, 320, Tile::k1x128, 1, Mild, Element::kE5M2);
  const Fp8Operand b = RandomFp8(130, 320, Tile::k128x128, 3, Mild);
  std::vector<uint8_t> a_bytes = LaidOut(a);
  std::vector<uint8_t> b_bytes = LaidOut(b);
  std::vector<float> c(33 * 130);
  const GemmFp8 op = {.a = {.spec = a.Spec(Role::kA), .data = a_bytes.data()},
                      .b = {.spec = b.Spec(Role::kB), .data = b_bytes.data()},
                      .bias = nullptr,
                      .c = c.data(),
                      .c_type = ResultType::kFloat32,
                      .accumulate = false};
  ASSERT_TRUE(cpu::RunGemmFp8(op, matmul->get(), &a_scratch, &b_scratch).ok());
  EXPECT_TRUE(
      Share(a.value, b.value, testing_support::ToDouble(c), ResultType::kFloat32).Holds("c"));
}

// Every code of both formats folds exactly: products with 1 under a scale of 2^-6.
TEST(GemmFp8, EveryCodeTimesOneIsItsValue) {
  for (const Element element : {Element::kE4M3, Element::kE5M2}) {
    Fp8Operand codes = RandomFp8(
        256, 32, Tile::k1x128, 1, [](int64_t, int64_t) { return -6; }, element);
    const Fp8Operand ones = {.tile = Tile::k1x128,
                             .element = Element::kE4M3,
                             .plain = {.codes = std::vector<uint8_t>(32, 0), .scale_inv = {1.0f}},
                             .value = {.x = {}, .rows = 1, .k = 32}};
    Fp8Operand one = ones;
    one.plain.codes[0] = FloatToE4m3(1.0f);
    for (size_t code = 0; code < 256; ++code) {
      std::fill_n(codes.plain.codes.begin() + static_cast<int64_t>(code) * 32, 32, uint8_t{0});
      codes.plain.codes[code * 32] = static_cast<uint8_t>(code);
    }
    const std::vector<double> got = RunFp8(codes, one, ResultType::kFloat32);
    for (size_t code = 0; code < 256; ++code) {
      const float value = CodeToFloat(element, static_cast<uint8_t>(code));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(got[code])) << code;
      } else {
        EXPECT_EQ(got[code], static_cast<double>(value) / 64) << code;
      }
    }
  }
}

struct Extreme {
  int low;                           // scale exponents of every other row of a
  int high;                          // and of every other block of b
  Element element = Element::kE4M3;  // of a
};

class ExtremeScales : public ::testing::TestWithParam<Extreme> {};

TEST_P(ExtremeScales, StayWithinTheBound) {
  const auto [low, high, element] = GetParam();
  const auto of_a = [low = low](int64_t line, int64_t) { return line % 2 == 0 ? low : 0; };
  const auto of_b = [high = high](int64_t line, int64_t) { return line % 2 == 0 ? high : 0; };
  const Fp8Operand a = RandomFp8(4, 200, Tile::k1x128, 1, of_a, element);
  const Fp8Operand b = RandomFp8(200, 200, Tile::k128x128, 2, of_b);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(200, 3);
  for (const ResultType type : {ResultType::kFloat32, ResultType::kBfloat16}) {
    EXPECT_TRUE(Share(a.value, b.value, RunFp8(a, b, type), type).Holds("plain"));
    EXPECT_TRUE(Share(a.value, b.value, RunFp8(a, b, type, bias), type,
                      {.bias = testing_support::ToDouble(bias), .initial = {}})
                    .Holds("bias"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Exponents, ExtremeScales,
    ::testing::Values(Extreme{-126, 126}, Extreme{126, -126}, Extreme{-60, -40}, Extreme{-117, 118},
                      Extreme{-50, -34}, Extreme{60, 9}, Extreme{-126, 126, Element::kE5M2},
                      Extreme{126, -126, Element::kE5M2}, Extreme{-110, 111, Element::kE5M2},
                      Extreme{-50, -27, Element::kE5M2}, Extreme{50, 12, Element::kE5M2}));

// The product of one number of `element` under scale 2^exponent with 1 under scale 2^other.
double ProductWithOne(Element element, uint8_t code, int exponent, int other) {
  const auto constant = [](int e) { return [e](int64_t, int64_t) { return e; }; };
  Fp8Operand a = RandomFp8(1, 32, Tile::k1x128, 1, constant(exponent), element);
  std::fill(a.plain.codes.begin(), a.plain.codes.end(), uint8_t{0});
  a.plain.codes[0] = code;
  Fp8Operand b = RandomFp8(1, 32, Tile::k1x128, 1, constant(other));
  std::fill(b.plain.codes.begin(), b.plain.codes.end(), FloatToE4m3(1.0f));
  return RunFp8(a, b, ResultType::kFloat32)[0];
}

// On both sides of every guard of the BF16 product: of the operands' smallest and largest numbers
// (the other side's scale takes the product back into the middle), and of the product's smallest.
TEST(GemmFp8, TheSmallestAndLargestNumbersAreExactOnBothSidesOfEveryGuard) {
  for (const Element element : {Element::kE4M3, Element::kE5M2}) {
    const auto largest_code = static_cast<uint8_t>(element == Element::kE4M3 ? 0x7E : 0x7B);
    const auto expect = [&](int exponent, int other) {
      for (const uint8_t code : {uint8_t{1}, uint8_t{3}, largest_code}) {
        const auto value = static_cast<double>(CodeToFloat(element, code));
        EXPECT_EQ(ProductWithOne(element, code, exponent, other),
                  std::ldexp(value, exponent + other))
            << exponent << " " << other << " " << int{code};
      }
    };
    for (int exponent = -126; exponent <= -100; ++exponent) expect(exponent, 40);
    for (int exponent = 105; exponent <= 126; ++exponent) expect(exponent, -60);
    for (int sum = -110; sum <= -60; ++sum) expect(sum / 2, sum - sum / 2);
  }
}

// Each product lies below float32's normal range, where matrix units flush, their sum within it.
TEST(GemmFp8, ProductsBelowTheNormalRangeAddUp) {
  constexpr int64_t kTerms = 512;
  for (const Element element : {Element::kE4M3, Element::kE5M2}) {
    const int smallest = SmallestExponent(element);
    for (int product = -134; product <= -95; ++product) {
      const int sum = product - smallest;
      const auto first = [sum](int64_t, int64_t) { return sum / 2; };
      const auto second = [sum](int64_t, int64_t) { return sum - sum / 2; };
      Fp8Operand a = RandomFp8(1, kTerms, Tile::k1x128, 1, first, element);
      Fp8Operand b = RandomFp8(1, kTerms, Tile::k1x128, 1, second);
      std::fill(a.plain.codes.begin(), a.plain.codes.end(), uint8_t{1});
      std::fill(b.plain.codes.begin(), b.plain.codes.end(), FloatToE4m3(1.0f));
      EXPECT_EQ(RunFp8(a, b, ResultType::kFloat32)[0], std::ldexp(1.0, product + 9)) << product;
    }
  }
}

TEST(GemmFp8, BiasIsAddedBeforeRounding) {
  const Fp8Operand a = RandomFp8(33, 129, Tile::k1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(31, 129, Tile::k128x128, 2, Mild);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(31, 3, 1e5f);
  const std::vector<double> got = RunFp8(a, b, ResultType::kBfloat16, bias);
  const Addends addends = {.bias = testing_support::ToDouble(bias), .initial = {}};
  EXPECT_TRUE(Share(a.value, b.value, got, ResultType::kBfloat16, addends).Holds("bias"));
  EXPECT_GT(Share(a.value, b.value, got, ResultType::kBfloat16).largest(), 1);
}

TEST(GemmFp8, ZeroTimesScalesIsZeroAndNaNCodesSpread) {
  Fp8Operand a = RandomFp8(3, 128, Tile::k1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(2, 128, Tile::k1x128, 2, Mild);
  std::fill_n(a.plain.codes.begin(), 128, uint8_t{0x80});
  a.plain.codes[128] = kE4m3NaN;
  const std::vector<double> got = RunFp8(a, b, ResultType::kFloat32);
  EXPECT_EQ(got[0], 0.0);
  EXPECT_TRUE(std::isnan(got[2]) && std::isnan(got[3]));
  EXPECT_FALSE(std::isnan(got[4]));
}

TEST(GemmFp8, AccumulatesInFloat32) {
  Device device;
  const Fp8Operand a = RandomFp8(65, 200, Tile::k1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(70, 200, Tile::k1x128, 2, Mild);
  const std::vector<float> initial = testing_support::Normal(65 * 70, 3, 1e4f);
  float* const c = device.Put(initial);
  ASSERT_TRUE(device
                  ->Run(GemmFp8{.a = Put(&device, a, Role::kA),
                                .b = Put(&device, b, Role::kB),
                                .bias = nullptr,
                                .c = c,
                                .c_type = ResultType::kFloat32,
                                .accumulate = true})
                  .ok());
  const Addends addends = {.bias = {}, .initial = testing_support::ToDouble(initial)};
  EXPECT_TRUE(Share(a.value, b.value, testing_support::ToDouble(device.Get(c, 65 * 70)),
                    ResultType::kFloat32, addends)
                  .Holds("accumulate"));
}

TEST(GemmFp8, AccumulatesWhereSomeRowsLeaveTheNormalRange) {
  const auto one_tiny = [](int64_t line, int64_t) { return line == 3 ? -126 : 0; };
  const Fp8Operand odd = RandomFp8(9, 200, Tile::k1x128, 1, one_tiny);
  const Fp8Operand plain = RandomFp8(7, 200, Tile::k1x128, 2, Mild);
  const std::vector<float> initial(63, 0.25f);
  for (const auto& [a, b] : {std::pair{odd, plain}, std::pair{plain, odd}}) {
    Device device;
    float* const c = device.Put(initial);
    ASSERT_TRUE(device
                    ->Run(GemmFp8{.a = Put(&device, a, Role::kA),
                                  .b = Put(&device, b, Role::kB),
                                  .bias = nullptr,
                                  .c = c,
                                  .c_type = ResultType::kFloat32,
                                  .accumulate = true})
                    .ok());
    EXPECT_TRUE(Share(a.value, b.value, testing_support::ToDouble(device.Get(c, 63)),
                      ResultType::kFloat32,
                      {.bias = {}, .initial = testing_support::ToDouble(initial)})
                    .Holds("accumulate"));
  }
}

struct ResidualCase {
  Fp8Operand a;
  Fp8Operand b;
  bool bias;
  bool in_place;
};

// Nearly the product's opposite, so that little is left of the sum: whoever rounds the product
// first leaves nothing.
std::vector<bfloat16> OppositeOfProduct(const Fp8Operand& a, const Fp8Operand& b) {
  std::vector<bfloat16> result;
  for (const double value : RunFp8(a, b, ResultType::kFloat32))
    result.push_back(ToBfloat16(static_cast<float>(-value)));
  return result;
}

void ExpectOneRounding(const ResidualCase& c) {
  Device device;
  const int64_t m = c.a.value.rows, n = c.b.value.rows, pitch = n + 5;
  const std::vector<bfloat16> residual = OppositeOfProduct(c.a, c.b);
  const auto bias = c.bias ? testing_support::NormalBfloat16(n, 3) : std::vector<bfloat16>();
  auto* const c_place = device.Make<bfloat16>(m * pitch);
  GemmFp8 op = {.a = Put(&device, c.a, Role::kA),
                .b = Put(&device, c.b, Role::kB),
                .bias = c.bias ? device.Put(bias) : nullptr,
                .c = c_place,
                .c_type = ResultType::kBfloat16,
                .accumulate = false,
                .c_pitch = pitch,
                .residual = device.Put(residual)};
  if (c.in_place) {
    const bfloat16 poison = {0xA5A5};
    op.c = device.Put(testing_support::Spread(residual, n, pitch, poison));
    op.residual = static_cast<bfloat16*>(op.c);
    op.residual_pitch = pitch;
  }
  ASSERT_TRUE(device->Run(op).ok());
  const Addends addends = {.bias = testing_support::ToDouble(bias),
                           .initial = testing_support::ToDouble(residual)};
  const auto got = testing_support::ToDouble(
      testing_support::GetRows(&device, static_cast<bfloat16*>(op.c), m, n, pitch));
  EXPECT_TRUE(Share(c.a.value, c.b.value, got, op.c_type, addends).Holds("residual"));
  if (c.bias) return;
  const std::vector<double> rounded_first(got.size(), 0.0);
  EXPECT_GT(Share(c.a.value, c.b.value, rounded_first, op.c_type, addends).largest(), 1);
}

TEST(GemmFp8, AddsAResidualBeforeTheOneRounding) {
  const auto one_tiny = [](int64_t line, int64_t) { return line == 3 ? -126 : 0; };
  const Fp8Operand plain = RandomFp8(33, 200, Tile::k1x128, 1, Mild);
  const Fp8Operand odd = RandomFp8(9, 200, Tile::k1x128, 2, one_tiny);
  const Fp8Operand blocks = RandomFp8(130, 200, Tile::k128x128, 3, Mild);
  for (const bool bias : {false, true}) {
    for (const bool in_place : {false, true}) {
      ExpectOneRounding({.a = plain, .b = blocks, .bias = bias, .in_place = in_place});
      ExpectOneRounding({.a = odd, .b = plain, .bias = bias, .in_place = in_place});
      ExpectOneRounding({.a = plain, .b = odd, .bias = bias, .in_place = in_place});
    }
  }
}

// Rows that are computed apart, since their scales are extreme, keep to the pitch too.
TEST(GemmFp8, WritesASliceOfAWiderMatrix) {
  const auto one_tiny = [](int64_t line, int64_t) { return line == 3 ? -126 : 0; };
  const Fp8Operand a = RandomFp8(9, 200, Tile::k1x128, 1, one_tiny);
  const Fp8Operand b = RandomFp8(7, 200, Tile::k1x128, 2, Mild);
  for (const ResultType type : {ResultType::kFloat32, ResultType::kBfloat16}) {
    Device device;
    void* const c = type == ResultType::kFloat32 ? static_cast<void*>(device.Make<float>(9 * 12))
                                                 : device.Make<bfloat16>(9 * 12);
    GemmFp8 op = {.a = Put(&device, a, Role::kA),
                  .b = Put(&device, b, Role::kB),
                  .bias = nullptr,
                  .c = c,
                  .c_type = type,
                  .accumulate = false,
                  .c_pitch = 12};
    ASSERT_TRUE(device->Run(op).ok());
    const std::vector<double> got = type == ResultType::kFloat32
                                        ? testing_support::ToDouble(testing_support::GetRows(
                                              &device, static_cast<float*>(c), 9, 7, 12))
                                        : testing_support::ToDouble(testing_support::GetRows(
                                              &device, static_cast<bfloat16*>(c), 9, 7, 12));
    EXPECT_TRUE(Share(a.value, b.value, got, type).Holds("slice"));
    op.c_pitch = 6;
    EXPECT_EQ(device->Run(op).message(), "GemmFp8: c_pitch is 6, must be 0 or at least 7");
  }
}

TEST(GemmFp8, TheSameProductTwiceIsTheSameToTheBit) {
  const Fp8Operand a = RandomFp8(130, 576, Tile::k1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(192, 576, Tile::k128x128, 2, Mild);
  EXPECT_EQ(RunFp8(a, b, ResultType::kFloat32), RunFp8(a, b, ResultType::kFloat32));
}

TEST(GemmFp8, RefusesWhatNoBackendCanDoAndSaysWhy) {
  Device device;
  const Fp8Operand tiles = RandomFp8(4, 128, Tile::k1x128, 1, Mild);
  const Fp8Operand blocks = RandomFp8(4, 128, Tile::k128x128, 2, Mild);
  const Fp8Operand longer = RandomFp8(4, 129, Tile::k1x128, 3, Mild);
  const GemmFp8 good = {.a = Put(&device, tiles, Role::kA),
                        .b = Put(&device, blocks, Role::kB),
                        .bias = nullptr,
                        .c = device.Make<float>(16),
                        .c_type = ResultType::kFloat32,
                        .accumulate = false};
  const auto refusal = [&](const GemmFp8& op) { return std::string(device->Run(op).message()); };
  EXPECT_TRUE(device->Run(good).ok());
  GemmFp8 bad = good;
  bad.a = Put(&device, blocks, Role::kA);
  EXPECT_THAT(refusal(bad), HasSubstr("GemmFp8: both operands have 128x128 blocks"));
  bad = good;
  bad.a = bad.b;
  EXPECT_THAT(refusal(bad), HasSubstr("a was quantised for the other side of a product"));
  bad = good;
  bad.a.spec.element = Element::kE5M2;
  bad.b.spec.element = Element::kE5M2;
  EXPECT_THAT(refusal(bad), HasSubstr("both operands are E5M2"));
  bad = good;
  bad.a.spec.tile = Tile::k1x32;
  EXPECT_THAT(refusal(bad), HasSubstr("a has 1x32 tiles"));
  EXPECT_EQ(device->Run(bad).code(), absl::StatusCode::kUnimplemented);
  bad = good;
  bad.a = Put(&device, longer, Role::kA);
  EXPECT_THAT(refusal(bad), HasSubstr("a.columns 129 differs from b.columns 128"));
  bad = good;
  bad.c = nullptr;
  EXPECT_THAT(refusal(bad), HasSubstr("c is null"));
  bad = good;
  bad.accumulate = true;
  bad.c_type = ResultType::kBfloat16;
  EXPECT_THAT(refusal(bad), HasSubstr("accumulate needs a float32 c"));
  bad = good;
  bad.accumulate = true;
  bad.bias = device.Make<bfloat16>(4);
  EXPECT_THAT(refusal(bad), HasSubstr("accumulate and bias exclude each other"));
  bad = good;
  bad.residual = device.Make<bfloat16>(16);
  EXPECT_THAT(refusal(bad), HasSubstr("residual needs a bfloat16 c; c_type is float32"));
  bad.c_type = ResultType::kBfloat16;
  bad.residual_pitch = 3;
  EXPECT_THAT(refusal(bad), HasSubstr("residual_pitch is 3, must be 0 or at least 4"));
  bad.c = const_cast<bfloat16*>(bad.residual);
  bad.residual_pitch = 5;
  EXPECT_THAT(refusal(bad),
              HasSubstr("residual is c, but residual_pitch 5 differs from c_pitch 0"));
  bad = good;
  bad.a.spec.rows = 0;
  EXPECT_THAT(refusal(bad), HasSubstr("a is 0 x 128"));
  EXPECT_EQ(device->Run(bad).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GemmCounts, CountWhatRanByOperandType) {
  Device device;
  const Fp8Operand tiles = RandomFp8(4, 128, Tile::k1x128, 1, Mild);
  GemmFp8 fp8 = {.a = Put(&device, tiles, Role::kA),
                 .b = Put(&device, tiles, Role::kB),
                 .bias = nullptr,
                 .c = device.Make<float>(16),
                 .c_type = ResultType::kFloat32,
                 .accumulate = false};
  ASSERT_TRUE(device->Run(fp8).ok());
  ASSERT_TRUE(device->Run(fp8).ok());
  fp8.c = nullptr;
  ASSERT_FALSE(device->Run(fp8).ok());
  EXPECT_EQ(device->gemm_counts().fp8, 2);
  EXPECT_EQ(device->gemm_counts().bf16, 0);
}

}  // namespace
}  // namespace octavo::kernels
