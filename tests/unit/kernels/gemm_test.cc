// Matrix products against float64, within the bound of kernels/ops/matmul.h.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul.h"
#include "kernels/numerics/e4m3.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/numbers.h"

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
  std::vector<uint8_t> codes;
  std::vector<float> scale_inv;
  Granularity granularity;
  Operand value;
};

Fp8Operand RandomFp8(int64_t rows, int64_t k, Granularity granularity, unsigned seed,
                     const std::function<int(int64_t, int64_t)>& exponent) {
  Fp8Operand result = {.codes = {},
                       .scale_inv = {},
                       .granularity = granularity,
                       .value = {.x = {}, .rows = rows, .k = k}};
  const bool tiles = granularity == Granularity::kTile1x128;
  for (int64_t line = 0; line < (tiles ? rows : TileCount(rows)); ++line)
    for (int64_t tile = 0; tile < TileCount(k); ++tile)
      result.scale_inv.push_back(PowerOfTwo(exponent(line, tile)));
  const std::vector<float> numbers = testing_support::Normal(rows * k, seed, 60.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < k; ++c) {
      const uint8_t code = FloatToE4m3(numbers[static_cast<size_t>(row * k + c)]);
      const int64_t line = tiles ? row : row / 128;
      const float scale = result.scale_inv[static_cast<size_t>(line * TileCount(k) + c / 128)];
      result.codes.push_back(code);
      result.value.x.push_back(static_cast<double>(E4m3ToFloat(code)) * static_cast<double>(scale));
    }
  }
  return result;
}

Fp8Matrix Put(Device* device, const Fp8Operand& operand) {
  return {.codes = device->Put(operand.codes),
          .scale_inv = device->Put(operand.scale_inv),
          .rows = operand.value.rows,
          .columns = operand.value.k,
          .granularity = operand.granularity};
}

std::vector<double> RunFp8(const Fp8Operand& a, const Fp8Operand& b, ResultType type,
                           const std::vector<bfloat16>& bias = {}) {
  Device device;
  const int64_t count = a.value.rows * b.value.rows;
  GemmFp8 op = {.a = Put(&device, a),
                .b = Put(&device, b),
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
    const Fp8Operand a = RandomFp8(size, k, Granularity::kTile1x128, 1, Mild);
    const Fp8Operand tiles = RandomFp8(33, k, Granularity::kTile1x128, 2, Mild);
    const Fp8Operand blocks = RandomFp8(130, k, Granularity::kBlock128x128, 3, Mild);
    for (const ResultType type : {ResultType::kFloat32, ResultType::kBfloat16}) {
      EXPECT_TRUE(Share(a.value, tiles.value, RunFp8(a, tiles, type), type).Holds("tiles"));
      EXPECT_TRUE(Share(a.value, blocks.value, RunFp8(a, blocks, type), type).Holds("blocks"));
      EXPECT_TRUE(Share(blocks.value, a.value, RunFp8(blocks, a, type), type).Holds("swapped"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ragged, Fp8Shapes, ::testing::Values(1, 31, 32, 33, 127, 128, 129));

TEST(GemmFp8, TilesWhoseScalesDifferByTwoToTheTenAreNotConfused) {
  const auto steep = [](int64_t line, int64_t tile) {
    return static_cast<int>((line + tile) % 2) * 10;
  };
  const Fp8Operand a = RandomFp8(5, 384, Granularity::kTile1x128, 1, steep);
  const Fp8Operand b = RandomFp8(6, 384, Granularity::kTile1x128, 2, steep);
  const std::vector<double> got = RunFp8(a, b, ResultType::kFloat32);
  EXPECT_TRUE(Share(a.value, b.value, got, ResultType::kFloat32).Holds("steep"));

  Fp8Operand swapped = RandomFp8(5, 384, Granularity::kTile1x128, 1,
                                 [&](int64_t line, int64_t tile) { return steep(line, tile + 1); });
  EXPECT_GT(Share(swapped.value, b.value, got, ResultType::kFloat32).largest(), 1);
}

class ExtremeScales : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(ExtremeScales, StayWithinTheBound) {
  const auto [low, high] = GetParam();
  const auto of_a = [low = low](int64_t line, int64_t) { return line % 2 == 0 ? low : 0; };
  const auto of_b = [high = high](int64_t line, int64_t) { return line % 2 == 0 ? high : 0; };
  const Fp8Operand a = RandomFp8(4, 200, Granularity::kTile1x128, 1, of_a);
  const Fp8Operand b = RandomFp8(200, 200, Granularity::kBlock128x128, 2, of_b);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(200, 3);
  for (const ResultType type : {ResultType::kFloat32, ResultType::kBfloat16}) {
    EXPECT_TRUE(Share(a.value, b.value, RunFp8(a, b, type), type).Holds("plain"));
    EXPECT_TRUE(Share(a.value, b.value, RunFp8(a, b, type, bias), type,
                      {.bias = testing_support::ToDouble(bias), .initial = {}})
                    .Holds("bias"));
  }
}

INSTANTIATE_TEST_SUITE_P(Exponents, ExtremeScales,
                         ::testing::Values(std::pair{-126, 126}, std::pair{126, -126},
                                           std::pair{-60, -40}, std::pair{-117, 118},
                                           std::pair{-50, -34}, std::pair{60, 9}));

TEST(GemmFp8, BiasIsAddedBeforeRounding) {
  const Fp8Operand a = RandomFp8(33, 129, Granularity::kTile1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(31, 129, Granularity::kBlock128x128, 2, Mild);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(31, 3, 1e5f);
  const std::vector<double> got = RunFp8(a, b, ResultType::kBfloat16, bias);
  const Addends addends = {.bias = testing_support::ToDouble(bias), .initial = {}};
  EXPECT_TRUE(Share(a.value, b.value, got, ResultType::kBfloat16, addends).Holds("bias"));
  EXPECT_GT(Share(a.value, b.value, got, ResultType::kBfloat16).largest(), 1);
}

TEST(GemmFp8, ZeroTimesScalesIsZeroAndNaNCodesSpread) {
  Fp8Operand a = RandomFp8(3, 128, Granularity::kTile1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(2, 128, Granularity::kTile1x128, 2, Mild);
  std::fill_n(a.codes.begin(), 128, uint8_t{0x80});
  a.codes[128] = kE4m3NaN;
  const std::vector<double> got = RunFp8(a, b, ResultType::kFloat32);
  EXPECT_EQ(got[0], 0.0);
  EXPECT_TRUE(std::isnan(got[2]) && std::isnan(got[3]));
  EXPECT_FALSE(std::isnan(got[4]));
}

TEST(GemmFp8, AccumulatesInFloat32) {
  Device device;
  const Fp8Operand a = RandomFp8(65, 200, Granularity::kTile1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(70, 200, Granularity::kTile1x128, 2, Mild);
  const std::vector<float> initial = testing_support::Normal(65 * 70, 3, 1e4f);
  float* const c = device.Put(initial);
  ASSERT_TRUE(device
                  ->Run(GemmFp8{.a = Put(&device, a),
                                .b = Put(&device, b),
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
  const Fp8Operand odd = RandomFp8(9, 200, Granularity::kTile1x128, 1, one_tiny);
  const Fp8Operand plain = RandomFp8(7, 200, Granularity::kTile1x128, 2, Mild);
  const std::vector<float> initial(63, 0.25f);
  for (const auto& [a, b] : {std::pair{odd, plain}, std::pair{plain, odd}}) {
    Device device;
    float* const c = device.Put(initial);
    ASSERT_TRUE(device
                    ->Run(GemmFp8{.a = Put(&device, a),
                                  .b = Put(&device, b),
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

TEST(GemmFp8, TheSameProductTwiceIsTheSameToTheBit) {
  const Fp8Operand a = RandomFp8(130, 576, Granularity::kTile1x128, 1, Mild);
  const Fp8Operand b = RandomFp8(192, 576, Granularity::kBlock128x128, 2, Mild);
  EXPECT_EQ(RunFp8(a, b, ResultType::kFloat32), RunFp8(a, b, ResultType::kFloat32));
}

TEST(GemmFp8, RefusesWhatNoBackendCanDoAndSaysWhy) {
  Device device;
  const Fp8Operand tiles = RandomFp8(4, 128, Granularity::kTile1x128, 1, Mild);
  const Fp8Operand blocks = RandomFp8(4, 128, Granularity::kBlock128x128, 2, Mild);
  const Fp8Operand longer = RandomFp8(4, 129, Granularity::kTile1x128, 3, Mild);
  const GemmFp8 good = {.a = Put(&device, tiles),
                        .b = Put(&device, blocks),
                        .bias = nullptr,
                        .c = device.Make<float>(16),
                        .c_type = ResultType::kFloat32,
                        .accumulate = false};
  const auto refusal = [&](const GemmFp8& op) { return std::string(device->Run(op).message()); };
  EXPECT_TRUE(device->Run(good).ok());
  GemmFp8 bad = good;
  bad.a = bad.b;
  EXPECT_THAT(refusal(bad), HasSubstr("GemmFp8: both operands have 128x128 blocks"));
  bad = good;
  bad.a = Put(&device, longer);
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
  bad.a.rows = 0;
  EXPECT_THAT(refusal(bad), HasSubstr("a.rows is 0"));
  EXPECT_EQ(device->Run(bad).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GemmCounts, CountWhatRanByOperandType) {
  Device device;
  const Fp8Operand tiles = RandomFp8(4, 128, Granularity::kTile1x128, 1, Mild);
  GemmFp8 fp8 = {.a = Put(&device, tiles),
                 .b = Put(&device, tiles),
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

// Runs every layout and result type through `run`.
void ExpectEveryLayout(const std::function<absl::Status(const GemmBf16&)>& run, int64_t m,
                       int64_t n, int64_t k) {
  const std::vector<bfloat16> a = testing_support::NormalBfloat16(m * k, 1);
  const std::vector<bfloat16> b = testing_support::NormalBfloat16(n * k, 2);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(n, 3);
  const std::vector<bfloat16> a_turned = Transposed(a, m, k);
  const std::vector<bfloat16> b_turned = Transposed(b, n, k);
  const Operand a_wide = {.x = testing_support::ToDouble(a), .rows = m, .k = k};
  const Operand b_wide = {.x = testing_support::ToDouble(b), .rows = n, .k = k};
  for (const Layout a_layout : {Layout::kNormal, Layout::kTransposed}) {
    for (const Layout b_layout : {Layout::kNormal, Layout::kTransposed}) {
      std::vector<float> wide(static_cast<size_t>(m * n), 7.0f);
      std::vector<bfloat16> narrow(wide.size());
      GemmBf16 op = {.a = a_layout == Layout::kNormal ? a.data() : a_turned.data(),
                     .b = b_layout == Layout::kNormal ? b.data() : b_turned.data(),
                     .a_layout = a_layout,
                     .b_layout = b_layout,
                     .m = m,
                     .n = n,
                     .k = k,
                     .bias = nullptr,
                     .c = wide.data(),
                     .c_type = ResultType::kFloat32,
                     .accumulate = true};
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(Share(a_wide, b_wide, testing_support::ToDouble(wide), op.c_type,
                        {.bias = {}, .initial = std::vector<double>(wide.size(), 7.0)})
                      .Holds("accumulate"));
      op.c = narrow.data();
      op.c_type = ResultType::kBfloat16;
      op.accumulate = false;
      op.bias = bias.data();
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(Share(a_wide, b_wide, testing_support::ToDouble(narrow), op.c_type,
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
    ExpectEveryLayout([&](const GemmBf16& op) { return (*matmul)->Run(op); }, m, n, k);
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
