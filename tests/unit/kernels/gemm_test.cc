// Matrix products against float64, within the bound of kernels/ops/matmul.h.
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
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/numbers.h"
#include "tests/support/pitched.h"
#include "tests/support/quantized.h"

namespace octavo::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::BoundShare;
using testing_support::Device;

// [rows, k], K-major, in float64.
struct Operand {
  std::vector<double> x;
  int64_t rows;
  int64_t k;

  double at(int64_t row, int64_t column) const { return x[static_cast<size_t>(row * k + column)]; }
};

struct Addends {
  std::vector<double> bias;     // [N] or empty
  std::vector<double> initial;  // [M, N], what accumulation starts from, or empty
};

BoundShare Share(const Operand& a, const Operand& b, const std::vector<double>& got,
                 ResultType type, const Addends& addends = {}) {
  BoundShare share;
  for (int64_t m = 0; m < a.rows; ++m) {
    for (int64_t n = 0; n < b.rows; ++n) {
      const auto at = static_cast<size_t>(m * b.rows + n);
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < a.k; ++k) {
        sum += a.at(m, k) * b.at(n, k);
        magnitude += std::fabs(a.at(m, k) * b.at(n, k));
      }
      if (!addends.bias.empty()) {
        sum += addends.bias[static_cast<size_t>(n)];
        magnitude += std::fabs(addends.bias[static_cast<size_t>(n)]);
      }
      if (!addends.initial.empty()) {
        sum += addends.initial[at];
        magnitude += std::fabs(addends.initial[at]);
      }
      // Beyond float32 the right answer is infinity.
      if (std::fabs(sum) > static_cast<double>(std::numeric_limits<float>::max()))
        sum = std::copysign(std::numeric_limits<double>::infinity(), sum);
      double bound = 4 * std::sqrt(static_cast<double>(a.k)) * std::ldexp(magnitude, -24) +
                     std::ldexp(1, -126);
      if (type == ResultType::kBfloat16) bound += std::ldexp(std::fabs(sum), -8);
      share.Add(got[at], sum, bound);
    }
  }
  return share;
}

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

// The transposed copy of a [rows, columns] matrix.
std::vector<bfloat16> Transposed(const std::vector<bfloat16>& x, int64_t rows, int64_t columns) {
  std::vector<bfloat16> result;
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) result.push_back(x[static_cast<size_t>(r * columns + c)]);
  return result;
}

// An operand as it is stored, NaN between its rows.
struct Stored {
  std::vector<bfloat16> values;
  int64_t pitch;
};

// [rows, k] or its transpose, with `gap` elements between the rows.
Stored Store(const std::vector<bfloat16>& x, int64_t rows, int64_t k, Layout layout, int64_t gap) {
  const bool normal = layout == Layout::kNormal;
  const int64_t columns = normal ? k : rows;
  const bfloat16 nan = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
  return {.values = testing_support::Spread(normal ? x : Transposed(x, rows, k), columns,
                                            columns + gap, nan),
          .pitch = gap == 0 ? 0 : columns + gap};
}

// The rows of a result whose gaps still hold `between`.
template <typename T>
std::vector<double> Gather(const std::vector<T>& c, int64_t n, int64_t gap, double between) {
  const std::vector<double> wide = testing_support::ToDouble(c);
  std::vector<double> rows;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (static_cast<int64_t>(i) % (n + gap) < n) {
      rows.push_back(wide[i]);
    } else {
      EXPECT_EQ(wide[i], between) << "written between rows";
    }
  }
  return rows;
}

struct Bf16Case {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t gap;  // elements between rows; a, b and c have different ones
};

// Runs every layout and result type through `run`.
void ExpectEveryLayout(const std::function<absl::Status(const GemmBf16&)>& run,
                       const Bf16Case& test) {
  const auto [m, n, k, gap] = test;
  const int64_t b_gap = 2 * gap, c_gap = 3 * gap;
  const std::vector<bfloat16> a = testing_support::NormalBfloat16(m * k, 1);
  const std::vector<bfloat16> b = testing_support::NormalBfloat16(n * k, 2);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(n, 3);
  const Operand a_wide = {.x = testing_support::ToDouble(a), .rows = m, .k = k};
  const Operand b_wide = {.x = testing_support::ToDouble(b), .rows = n, .k = k};
  for (const Layout a_layout : {Layout::kNormal, Layout::kTransposed}) {
    for (const Layout b_layout : {Layout::kNormal, Layout::kTransposed}) {
      const Stored a_stored = Store(a, m, k, a_layout, gap);
      const Stored b_stored = Store(b, n, k, b_layout, b_gap);
      std::vector<float> wide(static_cast<size_t>(m * (n + c_gap)), 7.0f);
      std::vector<bfloat16> narrow(wide.size(), ToBfloat16(7.0f));
      GemmBf16 op = {.a = a_stored.values.data(),
                     .b = b_stored.values.data(),
                     .a_layout = a_layout,
                     .b_layout = b_layout,
                     .m = m,
                     .n = n,
                     .k = k,
                     .bias = nullptr,
                     .c = wide.data(),
                     .c_type = ResultType::kFloat32,
                     .accumulate = true,
                     .a_pitch = a_stored.pitch,
                     .b_pitch = b_stored.pitch,
                     .c_pitch = gap == 0 ? 0 : n + c_gap};
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(
          Share(a_wide, b_wide, Gather(wide, n, c_gap, 7), op.c_type,
                {.bias = {}, .initial = std::vector<double>(static_cast<size_t>(m * n), 7.0)})
              .Holds("accumulate"));
      op.c = narrow.data();
      op.c_type = ResultType::kBfloat16;
      op.accumulate = false;
      op.bias = bias.data();
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(Share(a_wide, b_wide, Gather(narrow, n, c_gap, 7), op.c_type,
                        {.bias = testing_support::ToDouble(bias), .initial = {}})
                      .Holds("bias"));
    }
  }
}

class Bf16Shapes : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {};

TEST_P(Bf16Shapes, EveryLayoutStaysWithinItsBound) {
  const auto [m, n, k] = GetParam();
  cpu::Memory memory(0);
  for (const cpu::Operands operands : {cpu::Operands::kBest, cpu::Operands::kFloat32}) {
    auto matmul = cpu::Matmul::Create(&memory, operands);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    for (const int64_t gap : {0, 5}) {
      ExpectEveryLayout([&](const GemmBf16& op) { return (*matmul)->Run(op); },
                        {.m = m, .n = n, .k = k, .gap = gap});
    }
  }
}

TEST(Matmul, ProductsAreBfloat16OnEveryProcessorThatHasThem) {
  for (const uint32_t isa : {0xe7u, 0x1efu, 0x3e7u, 0xfefu, 0x1fefu})  // BF16, FP16, AMX, AMX FP16
    EXPECT_TRUE(cpu::HasBfloat16Products(isa)) << isa;
  for (const uint32_t isa : {0u, 0x7u, 0x1fu, 0x27u, 0x67u, 0x407u})  // up to AVX-512 VNNI
    EXPECT_FALSE(cpu::HasBfloat16Products(isa)) << isa;
}

TEST(Matmul, SaysThatItWidens) {
  cpu::Memory memory(0);
  auto matmul = cpu::Matmul::Create(&memory, cpu::Operands::kFloat32);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  EXPECT_THAT((*matmul)->Describe(), testing::HasSubstr("f32, widened from bf16"));
}

INSTANTIATE_TEST_SUITE_P(Ragged, Bf16Shapes,
                         ::testing::Values(std::tuple{1, 1, 1}, std::tuple{31, 33, 129},
                                           std::tuple{128, 127, 32}, std::tuple{129, 128, 127},
                                           std::tuple{1, 320, 64}));

}  // namespace
}  // namespace octavo::kernels
