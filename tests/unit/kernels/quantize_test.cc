// Quantisers byte for byte against the formulas of kernels/ops/quantize.h, written element by
// element.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/processor.h"
#include "kernels/numerics/e4m3.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "tests/support/device.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

using testing_support::Device;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<float> scale_inv;
  bool operator==(const Quantized&) const = default;
};

struct Matrix {
  std::vector<float> x;  // BF16 values
  int64_t rows;
  int64_t columns;

  float at(int64_t row, int64_t column) const {
    return x[static_cast<size_t>(row * columns + column)];
  }
  Matrix Transposed() const {
    Matrix result = {.x = {}, .rows = columns, .columns = rows};
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) result.x.push_back(at(r, c));
    return result;
  }
  std::vector<bfloat16> Rounded() const { return testing_support::ToBfloat16(x); }
};

// The rule by trying exponents from above, in float64.
int WantedExponent(double amax) {
  if (amax == 0 || std::isinf(amax)) return 0;
  int exponent = 127;
  while (exponent > -126 && amax * std::ldexp(1.0, exponent) > 448) --exponent;
  return std::min(exponent, 126);
}

// Tiles of `tile_rows` x 128.
Quantized Quantize(const Matrix& m, int64_t tile_rows) {
  Quantized result;
  result.codes.resize(m.x.size());
  for (int64_t r0 = 0; r0 < m.rows; r0 += tile_rows) {
    for (int64_t c0 = 0; c0 < m.columns; c0 += 128) {
      const int64_t r1 = std::min(r0 + tile_rows, m.rows);
      const int64_t c1 = std::min<int64_t>(c0 + 128, m.columns);
      double amax = 0;
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c)
          amax = std::fmax(amax, std::fabs(static_cast<double>(m.at(r, c))));
      const int exponent = WantedExponent(amax);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          const double scaled = std::ldexp(static_cast<double>(m.at(r, c)), exponent);
          result.codes[static_cast<size_t>(r * m.columns + c)] =
              FloatToE4m3(static_cast<float>(scaled));
        }
      }
      result.scale_inv.push_back(static_cast<float>(std::ldexp(1.0, -exponent)));
    }
  }
  return result;
}

struct TilesResult {
  Quantized rows;
  Quantized columns;
  uint32_t nonfinite;
  bool operator==(const TilesResult&) const = default;
};

TilesResult RunTiles(const Matrix& m, int threads = 2) {
  Device device(threads);
  const int64_t count = m.rows * m.columns;
  const int64_t row_scales = TileScales(m.rows, m.columns);
  const int64_t column_scales = TileScales(m.columns, m.rows);
  const QuantizeTiles op = {.x = device.Put(m.Rounded()),
                            .rows = m.rows,
                            .columns = m.columns,
                            .row_codes = device.Make<uint8_t>(count),
                            .row_scale_inv = device.Make<float>(row_scales),
                            .column_codes = device.Make<uint8_t>(count),
                            .column_scale_inv = device.Make<float>(column_scales),
                            .nonfinite = device.Put<uint32_t>({0})};
  EXPECT_TRUE(device->Run(op).ok());
  return {.rows = {device.Get(op.row_codes, count), device.Get(op.row_scale_inv, row_scales)},
          .columns = {device.Get(op.column_codes, count),
                      device.Get(op.column_scale_inv, column_scales)},
          .nonfinite = device.Get(op.nonfinite, 1)[0]};
}

struct BlocksResult {
  Quantized normal;
  Quantized transposed;
  uint32_t nonfinite;
  bool operator==(const BlocksResult&) const = default;
};

BlocksResult RunBlocks(const Matrix& m) {
  Device device;
  const int64_t count = m.rows * m.columns;
  const int64_t scales = BlockScales(m.rows, m.columns);
  const QuantizeBlocks op = {.x = device.Put(m.x),
                             .rows = m.rows,
                             .columns = m.columns,
                             .codes = device.Make<uint8_t>(count),
                             .scale_inv = device.Make<float>(scales),
                             .transposed_codes = device.Make<uint8_t>(count),
                             .transposed_scale_inv = device.Make<float>(scales),
                             .nonfinite = device.Put<uint32_t>({0})};
  EXPECT_TRUE(device->Run(op).ok());
  return {.normal = {device.Get(op.codes, count), device.Get(op.scale_inv, scales)},
          .transposed = {device.Get(op.transposed_codes, count),
                         device.Get(op.transposed_scale_inv, scales)},
          .nonfinite = device.Get(op.nonfinite, 1)[0]};
}

// BF16 numbers whose size changes by 2^20 along rows and columns, with extremes strewn in.
Matrix Spread(int64_t rows, int64_t columns, unsigned seed) {
  Matrix m = {.x = testing_support::Normal(rows * columns, seed), .rows = rows, .columns = columns};
  const std::vector<float> extremes = {0.0f, -0.0f, 1e-40f, -3e-39f, 448.0f, 449.0f, 3e38f, 1e-30f};
  for (size_t i = 0; i < m.x.size(); ++i) {
    m.x[i] = std::ldexp(m.x[i], static_cast<int>(i % 41) - 20);
    if (i % 97 == 13) m.x[i] = extremes[i / 97 % extremes.size()];
    m.x[i] = ToFloat(ToBfloat16(m.x[i]));
  }
  return m;
}

Matrix Filled(int64_t rows, int64_t columns, float value) {
  return {.x = std::vector<float>(static_cast<size_t>(rows * columns), value),
          .rows = rows,
          .columns = columns};
}

class QuantizeShapes : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(QuantizeShapes, TilesFollowTheFormulaAlongRowsAndColumns) {
  const Matrix m = Spread(GetParam().first, GetParam().second, 1);
  const TilesResult result = RunTiles(m);
  EXPECT_EQ(result.rows, Quantize(m, 1));
  EXPECT_EQ(result.columns, Quantize(m.Transposed(), 1));
  EXPECT_EQ(result.nonfinite, 0u);
}

TEST_P(QuantizeShapes, BlocksFollowTheFormulaAndAreTransposedAsTheyAre) {
  const Matrix m = Spread(GetParam().first, GetParam().second, 2);
  const BlocksResult result = RunBlocks(m);
  EXPECT_EQ(result.normal, Quantize(m, 128));
  EXPECT_EQ(result.transposed, Quantize(m.Transposed(), 128));
  EXPECT_EQ(result.nonfinite, 0u);
}

TEST_P(QuantizeShapes, BothProcessorVariantsGiveTheSameBytes) {
  const Matrix m = Spread(GetParam().first, GetParam().second, 3);
  const TilesResult tiles = RunTiles(m);
  const BlocksResult blocks = RunBlocks(m);
  cpu::UseProcessor(cpu::Processor::kPortable);
  EXPECT_EQ(RunTiles(m), tiles);
  EXPECT_EQ(RunBlocks(m), blocks);
  cpu::UseProcessor(cpu::Processor::kAvx512);
}

INSTANTIATE_TEST_SUITE_P(Ragged, QuantizeShapes,
                         ::testing::Values(std::pair{1, 1}, std::pair{1, 129}, std::pair{31, 33},
                                           std::pair{32, 128}, std::pair{127, 127},
                                           std::pair{128, 32}, std::pair{129, 31},
                                           std::pair{576, 192}, std::pair{130, 576}));

TEST(Quantize, EveryBfloat16GetsTheSameCodeAsTheScalarRule) {
  Matrix m = {.x = {}, .rows = 512, .columns = 128};
  for (int bits = 0; bits < 65536; ++bits)
    m.x.push_back(ToFloat(bfloat16{static_cast<uint16_t>(bits)}));
  for (const auto processor : {cpu::Processor::kPortable, cpu::Processor::kAvx512}) {
    cpu::UseProcessor(processor);
    EXPECT_EQ(RunTiles(m).rows, Quantize(m, 1));
  }
}

TEST(Quantize, AZeroTileHasScaleOneAndCodesZero) {
  const TilesResult result = RunTiles(Filled(3, 200, 0.0f));
  EXPECT_EQ(result.rows.scale_inv, std::vector<float>(6, 1.0f));
  EXPECT_EQ(result.rows.codes, std::vector<uint8_t>(600, 0));
  EXPECT_EQ(RunBlocks(Filled(200, 3, 0.0f)).normal.scale_inv, std::vector<float>(2, 1.0f));
}

TEST(Quantize, TheSmallestAndTheLargestNumbersKeepScalesNormal) {
  for (const int power : {-133, -126, -100, 0, 100, 127}) {
    const TilesResult result = RunTiles(Filled(1, 128, std::ldexp(1.0f, power)));
    const float scale_inv = result.rows.scale_inv[0];
    EXPECT_TRUE(std::isnormal(scale_inv) && std::isnormal(1.0f / scale_inv)) << power;
    if (power >= -126) {
      EXPECT_EQ(E4m3ToFloat(result.rows.codes[0]) * scale_inv, std::ldexp(1.0f, power));
    }
  }
}

TEST(Quantize, AnInfinityIsCountedSaturatesAndSetsScaleOne) {
  Matrix m = Filled(2, 128, 1000.0f);
  m.x[5] = -kInfinity;
  const TilesResult result = RunTiles(m);
  EXPECT_EQ(result.nonfinite, 1u);
  EXPECT_EQ(result.rows.codes[5], 0xFE);
  EXPECT_EQ(result.rows.codes[6], 0x7E);
  EXPECT_EQ(result.rows.scale_inv, (std::vector<float>{1.0f, 4.0f}));
  EXPECT_EQ(RunBlocks(m).nonfinite, 1u);
  EXPECT_EQ(RunBlocks(m).normal.scale_inv[0], 1.0f);
}

TEST(Quantize, ANaNIsCountedAndLeavesItsNeighboursAlone) {
  const Matrix clean = Filled(2, 130, 3.0f);
  Matrix m = clean;
  m.x[7] = -kNaN;
  TilesResult want = RunTiles(clean);
  const TilesResult result = RunTiles(m);
  EXPECT_EQ(result.nonfinite, 1u);
  want.nonfinite = 1;
  want.rows.codes[7] = 0x7F;
  want.columns.codes[14] = 0x7F;
  EXPECT_EQ(result, want);
}

TEST(Quantize, TheLastBlockOfARaggedMatrixIsScaledByItsOwnElements) {
  Matrix m = Filled(576, 128, 100.0f);
  for (size_t i = 512 * 128; i < m.x.size(); ++i) m.x[i] = 0.001f;
  const BlocksResult result = RunBlocks(m);
  ASSERT_EQ(result.normal.scale_inv.size(), 5u);
  EXPECT_EQ(result.normal.scale_inv[4],
            static_cast<float>(std::ldexp(
                1.0, -WantedExponent(static_cast<double>(ToFloat(ToBfloat16(0.001f)))))));
}

TEST(Quantize, TheCounterIsAddedTo) {
  Device device;
  const QuantizeBlocks op = {.x = device.Put<float>({kNaN, 1.0f, kInfinity}),
                             .rows = 1,
                             .columns = 3,
                             .codes = device.Make<uint8_t>(3),
                             .scale_inv = device.Make<float>(1),
                             .transposed_codes = nullptr,
                             .transposed_scale_inv = nullptr,
                             .nonfinite = device.Put<uint32_t>({40})};
  ASSERT_TRUE(device->Run(op).ok());
  EXPECT_EQ(device.Get(op.nonfinite, 1)[0], 42u);
}

TEST(Quantize, AFloat32ThatRoundsUpToInfinityIsCounted) {
  Matrix m = Filled(1, 2, 1.0f);
  m.x[0] = std::numeric_limits<float>::max();
  EXPECT_EQ(RunBlocks(m).nonfinite, 1u);
}

TEST(Quantize, ThreadsDoNotChangeTheBytes) {
  const Matrix m = Spread(300, 400, 4);
  EXPECT_EQ(RunTiles(m, 1), RunTiles(m, 3));
}

}  // namespace
}  // namespace octavo::kernels
