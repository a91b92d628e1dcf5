// Quantisers byte for byte against the formulas of kernels/ops/quantize.h, written element by
// element.
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "tests/support/device.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"
#include "tests/support/quantized.h"

namespace octavo::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::Device;
using testing_support::GetQuantized;
using testing_support::MakeQuantized;
using testing_support::PutQuantized;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Quantized = testing_support::PlainQuantized;

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
int WantedExponent(double amax, Element element = Element::kE4M3) {
  if (amax == 0 || std::isinf(amax)) return 0;
  const double largest = element == Element::kE4M3 ? 448 : 57344;
  int exponent = 127;
  while (exponent > -126 && amax * std::ldexp(1.0, exponent) > largest) --exponent;
  return std::min(exponent, 126);
}

// Tiles of `tile_rows` x 128.
Quantized Quantize(const Matrix& m, int64_t tile_rows, Element element = Element::kE4M3) {
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
      const int exponent = WantedExponent(amax, element);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          const double scaled = std::ldexp(static_cast<double>(m.at(r, c)), exponent);
          result.codes[static_cast<size_t>(r * m.columns + c)] =
              FloatToCode(element, static_cast<float>(scaled));
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
  uint64_t nonfinite;
  bool operator==(const TilesResult&) const = default;
};

TilesResult RunTiles(const Matrix& m, int threads = 2, Element element = Element::kE4M3) {
  Device device(threads);
  QuantizedSpec rows = {.rows = m.rows,
                        .columns = m.columns,
                        .element = element,
                        .tile = Tile::k1x128,
                        .role = Role::kA};
  QuantizedSpec columns = rows;
  std::swap(columns.rows, columns.columns);
  const QuantizeTiles op = {.x = device.Put(m.Rounded()),
                            .rows = m.rows,
                            .columns = m.columns,
                            .tiles = {.by_rows = MakeQuantized(&device, rows),
                                      .by_columns = MakeQuantized(&device, columns),
                                      .nonfinite = device.Put<uint64_t>({0})}};
  EXPECT_TRUE(device->Run(op).ok());
  return {.rows = GetQuantized(&device, op.tiles.by_rows),
          .columns = GetQuantized(&device, op.tiles.by_columns),
          .nonfinite = device.Get(op.tiles.nonfinite, 1)[0]};
}

struct BlocksResult {
  Quantized normal;
  Quantized transposed;
  uint64_t nonfinite;
  bool operator==(const BlocksResult&) const = default;
};

QuantizedSpec BlockSpec(int64_t rows, int64_t columns, Element element) {
  return {.rows = rows,
          .columns = columns,
          .element = element,
          .tile = Tile::k128x128,
          .role = Role::kB};
}

BlocksResult RunBlocks(const Matrix& m, Element element = Element::kE4M3) {
  Device device;
  const QuantizeBlocks op = {
      .x = device.Put(m.x),
      .rows = m.rows,
      .columns = m.columns,
      .normal = MakeQuantized(&device, BlockSpec(m.rows, m.columns, element)),
      .transposed = MakeQuantized(&device, BlockSpec(m.columns, m.rows, element)),
      .nonfinite = device.Put<uint64_t>({0})};
  EXPECT_TRUE(device->Run(op).ok());
  return {.normal = GetQuantized(&device, op.normal),
          .transposed = GetQuantized(&device, op.transposed),
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

TEST_P(QuantizeShapes, E5m2FollowsTheFormulaInTilesAndBlocks) {
  const Matrix m = Spread(GetParam().first, GetParam().second, 5);
  const TilesResult tiles = RunTiles(m, 2, Element::kE5M2);
  EXPECT_EQ(tiles.rows, Quantize(m, 1, Element::kE5M2));
  EXPECT_EQ(tiles.columns, Quantize(m.Transposed(), 1, Element::kE5M2));
  const BlocksResult blocks = RunBlocks(m, Element::kE5M2);
  EXPECT_EQ(blocks.normal, Quantize(m, 128, Element::kE5M2));
  EXPECT_EQ(blocks.transposed, Quantize(m.Transposed(), 128, Element::kE5M2));
}

TEST_P(QuantizeShapes, BlocksFollowTheFormulaAndAreTransposedAsTheyAre) {
  const Matrix m = Spread(GetParam().first, GetParam().second, 2);
  const BlocksResult result = RunBlocks(m);
  EXPECT_EQ(result.normal, Quantize(m, 128));
  EXPECT_EQ(result.transposed, Quantize(m.Transposed(), 128));
  EXPECT_EQ(result.nonfinite, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ragged, QuantizeShapes,
                         ::testing::Values(std::pair{1, 1}, std::pair{1, 129}, std::pair{31, 33},
                                           std::pair{32, 128}, std::pair{127, 127},
                                           std::pair{128, 32}, std::pair{129, 31},
                                           std::pair{576, 192}, std::pair{130, 576}));

class QuantizeOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(QuantizeOn);

TEST_P(QuantizeOn, RaggedMatricesGetTheBytesOfTheFormula) {
  for (const auto& [rows, columns] : {std::pair{1, 129}, std::pair{31, 33}, std::pair{130, 257}}) {
    const Matrix m = Spread(rows, columns, 3);
    for (const Element element : {Element::kE4M3, Element::kE5M2}) {
      const TilesResult tiles = RunTiles(m, 2, element);
      EXPECT_EQ(tiles.rows, Quantize(m, 1, element));
      EXPECT_EQ(tiles.columns, Quantize(m.Transposed(), 1, element));
    }
    const BlocksResult blocks = RunBlocks(m);
    EXPECT_EQ(blocks.normal, Quantize(m, 128));
    EXPECT_EQ(blocks.transposed, Quantize(m.Transposed(), 128));
  }
}

TEST_P(QuantizeOn, NonfiniteNumbersAreCounted) {
  Matrix m = Filled(130, 200, 1.0f);
  for (const size_t at : {size_t{0}, size_t{131}, m.x.size() - 1}) {
    m.x[at] = std::numeric_limits<float>::infinity();
    m.x[at / 2 + 7] = -std::numeric_limits<float>::quiet_NaN();
  }
  uint32_t count = 0;
  for (const float x : m.x) count += std::isfinite(x) ? 0 : 1;
  EXPECT_EQ(RunTiles(m).nonfinite, count);
}

TEST_P(QuantizeOn, EveryBfloat16GetsTheSameCodeAsTheScalarRule) {
  Matrix m = {.x = {}, .rows = 512, .columns = 128};
  for (int bits = 0; bits < 65536; ++bits)
    m.x.push_back(ToFloat(bfloat16{static_cast<uint16_t>(bits)}));
  for (const Element element : {Element::kE4M3, Element::kE5M2})
    EXPECT_EQ(RunTiles(m, 2, element).rows, Quantize(m, 1, element));
}

// Every BF16 number in a tile of its own with the number 1 or 2^-60 beside it: each code under
// scales that are not chosen by the number itself, up to those that are too large for the exponent
// field.
TEST_P(QuantizeOn, EveryBfloat16UnderAGivenScaleGetsTheSameCodeAsTheScalarRule) {
  for (const float neighbour : {1.0f, std::ldexp(1.0f, -60), std::ldexp(1.0f, -110)}) {
    Matrix m = {.x = {}, .rows = 32768, .columns = 2};
    for (int bits = 0; bits < 65536; bits += 2) {
      m.x.push_back(ToFloat(bfloat16{static_cast<uint16_t>(bits)}));
      m.x.push_back(neighbour);
    }
    for (const Element element : {Element::kE4M3, Element::kE5M2})
      EXPECT_EQ(RunTiles(m, 2, element).rows, Quantize(m, 1, element));
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

TEST(Quantize, AnInfinitySaturatesInE5m2Too) {
  Matrix m = Filled(1, 128, 1000.0f);
  m.x[5] = kInfinity;
  const TilesResult result = RunTiles(m, 2, Element::kE5M2);
  EXPECT_EQ(result.rows.codes[5], 0x7B);
  EXPECT_EQ(result.rows.codes[6], FloatToE5m2(1000.0f));
  EXPECT_EQ(result.rows.scale_inv[0], 1.0f);
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
                             .normal = MakeQuantized(&device, BlockSpec(1, 3, Element::kE4M3)),
                             .transposed = {},
                             .nonfinite = device.Put<uint64_t>({40})};
  ASSERT_TRUE(device->Run(op).ok());
  EXPECT_EQ(device.Get(op.nonfinite, 1)[0], 42u);
}

// The counter is a wide one: 2^32 values that are not finite must not look like none.
TEST(Quantize, TheCounterDoesNotWrapAround) {
  Device device;
  const QuantizeBlocks op = {.x = device.Put<float>({kNaN}),
                             .rows = 1,
                             .columns = 1,
                             .normal = MakeQuantized(&device, BlockSpec(1, 1, Element::kE4M3)),
                             .transposed = {},
                             .nonfinite = device.Put<uint64_t>({0xFFFFFFFF})};
  ASSERT_TRUE(device->Run(op).ok());
  EXPECT_EQ(device.Get(op.nonfinite, 1)[0], uint64_t{1} << 32);
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

TEST(Quantized, PlainCodesAndScalesComeBackAsTheyWentIn) {
  for (const Tile tile : {Tile::k1x128, Tile::k128x128}) {
    const QuantizedSpec spec = {.rows = 131, .columns = 261, .tile = tile, .role = Role::kB};
    testing_support::PlainQuantized plain;
    for (int64_t i = 0; i < spec.rows * spec.columns; ++i)
      plain.codes.push_back(static_cast<uint8_t>(i * 7));
    for (int64_t i = 0; i < spec.scales(); ++i)
      plain.scale_inv.push_back(PowerOfTwo(static_cast<int>(i % 253) - 126));
    Device device;
    EXPECT_EQ(GetQuantized(&device, PutQuantized(&device, spec, plain)), plain);
  }
}

TEST(Quantized, WhatNoBackendHasAndWhatDoesNotFitIsRefusedByName) {
  Device device;
  QuantizedSpec spec = {.rows = 2, .columns = 64, .tile = Tile::k1x128, .role = Role::kA};
  const QuantizeTiles good = {
      .x = device.Put(testing_support::NormalBfloat16(128, 1)),
      .rows = 2,
      .columns = 64,
      .tiles = {.by_rows = MakeQuantized(&device, spec), .by_columns = {}, .nonfinite = nullptr}};
  ASSERT_TRUE(device->Run(good).ok());
  QuantizeTiles bad = good;
  bad.tiles.by_rows.spec.tile = Tile::k1x32;
  absl::Status refusal = device->Run(bad);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refusal.message()),
              HasSubstr("QuantizeTiles: tiles.by_rows has 1x32 tiles with float32 scales"));
  bad = good;
  bad.tiles.by_rows.spec.scale_type = ScaleType::kE8M0;
  EXPECT_THAT(std::string(device->Run(bad).message()), HasSubstr("1x128 tiles with E8M0 scales"));
  bad = good;
  bad.tiles.by_rows.spec.tile = Tile::k128x128;
  EXPECT_THAT(std::string(device->Run(bad).message()),
              HasSubstr("by_rows has 128x128 tiles, must have 1x128"));
  bad = good;
  bad.tiles.by_columns = bad.tiles.by_rows;
  EXPECT_THAT(std::string(device->Run(bad).message()),
              HasSubstr("by_columns is 2 x 64, must be 64 x 2"));
}

}  // namespace
}  // namespace octavo::kernels
