// FP8 conversions, scales, tiles and products against the goldens in fp8/: codes and scales byte
// for byte, products within their bound.
#include <cmath>
#include <fstream>
#include <iterator>

#include "kernels/numerics/e4m3.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"
#include "nlohmann/json.hpp"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/golden.h"
#include "tests/support/numbers.h"
#include "tests/support/quantized.h"
#include "tests/support/safetensors.h"

namespace octavo {
namespace {

using kernels::bfloat16;
using kernels::QuantizedSpec;
using kernels::QuantizedTensor;
using kernels::ResultType;
using kernels::Role;
using kernels::Tile;
using testing_support::BoundShare;
using testing_support::Device;
using testing_support::GetQuantized;
using testing_support::MakeQuantized;
using testing_support::PlainQuantized;
using testing_support::PutQuantized;
using testing_support::Safetensors;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

QuantizedSpec Spec(int64_t rows, int64_t columns, Tile tile, Role role = Role::kA) {
  return {.rows = rows, .columns = columns, .tile = tile, .role = role};
}

class Fp8Golden : public ::testing::Test {
 protected:
  void SetUp() override { OCTAVO_SKIP_WITHOUT_GOLDEN("fp8"); }
  std::string Path(const std::string& file) { return testing_support::GoldenFolder("fp8/" + file); }
};

TEST_F(Fp8Golden, EveryBfloat16HasTheGoldenCode) {
  const std::string codes = ReadAll(Path("e4m3_from_bf16.bin"));
  ASSERT_EQ(codes.size(), 65536u);
  for (size_t bits = 0; bits < codes.size(); ++bits) {
    const bfloat16 x = {static_cast<uint16_t>(bits)};
    ASSERT_EQ(kernels::FloatToE4m3(ToFloat(x)), static_cast<uint8_t>(codes[bits])) << bits;
  }
}

TEST_F(Fp8Golden, Float32AroundEveryRoundingBoundaryHasTheGoldenCode) {
  const Safetensors file(Path("e4m3_from_fp32.safetensors"));
  const auto input = file.at("input").As<float>();
  const auto codes = file.at("code").As<uint8_t>();
  ASSERT_EQ(input.size(), codes.size());
  for (size_t i = 0; i < input.size(); ++i)
    ASSERT_EQ(kernels::FloatToE4m3(input[i]), codes[i]) << input[i];
}

TEST_F(Fp8Golden, EveryCodeHasTheGoldenValue) {
  const std::string bytes = ReadAll(Path("e4m3_values.f32"));
  std::vector<float> values(256);
  ASSERT_EQ(bytes.size(), 1024u);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (int code = 0; code < 256; ++code) {
    const float value = kernels::E4m3ToFloat(static_cast<uint8_t>(code));
    if (std::isnan(values[static_cast<size_t>(code)])) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, values[static_cast<size_t>(code)]) << code;
      EXPECT_EQ(std::signbit(value), std::signbit(values[static_cast<size_t>(code)])) << code;
    }
  }
}

TEST_F(Fp8Golden, EveryAmaxHasTheGoldenScale) {
  const Safetensors file(Path("scales.safetensors"));
  const auto amax = file.at("amax").As<float>();
  const auto scale_inv = file.at("scale_inv").As<float>();
  ASSERT_EQ(amax.size(), scale_inv.size());
  for (size_t i = 0; i < amax.size(); ++i)
    ASSERT_EQ(kernels::PowerOfTwo(-kernels::ScaleExponent(amax[i], kernels::Element::kE4M3)),
              scale_inv[i])
        << amax[i];
}

TEST_F(Fp8Golden, TilesWithOneNonfiniteElementHaveTheGoldenCodes) {
  const auto cases = nlohmann::json::parse(ReadAll(Path("nonfinite.json")));
  ASSERT_FALSE(cases.empty());
  for (const auto& entry : cases) {
    std::vector<bfloat16> x;
    std::vector<uint8_t> want;
    for (const auto& row : entry.at("x_bits"))
      for (const auto& bits : row) x.push_back({bits.get<uint16_t>()});
    for (const auto& row : entry.at("codes"))
      for (const auto& code : row) want.push_back(code.get<uint8_t>());
    std::vector<float> want_scales;
    for (const auto& row : entry.at("scale_inv")) {
      if (row.is_array()) {
        for (const auto& scale : row) want_scales.push_back(scale.get<float>());
      } else {
        want_scales.push_back(row.get<float>());
      }
    }
    const auto rows = static_cast<int64_t>(entry.at("x_bits").size());
    const auto columns = static_cast<int64_t>(x.size()) / rows;
    Device device;
    const QuantizedTensor tensor = MakeQuantized(&device, Spec(rows, columns, Tile::k1x128));
    uint64_t* const nonfinite = device.Put<uint64_t>({0});
    ASSERT_TRUE(device
                    ->Run(kernels::QuantizeTiles{
                        .x = device.Put(x),
                        .rows = rows,
                        .columns = columns,
                        .tiles = {.by_rows = tensor, .by_columns = {}, .nonfinite = nonfinite}})
                    .ok());
    const PlainQuantized got = GetQuantized(&device, tensor);
    EXPECT_EQ(got.codes, want);
    EXPECT_EQ(got.scale_inv, want_scales);
    EXPECT_EQ(device.Get(nonfinite, 1)[0], 1u);
  }
}

// One linear layer of the goldens: x [T, K], dy [T, N], w [N, K].
class LinearGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string file = std::string("fp8/linear_") + GetParam() + ".safetensors";
    OCTAVO_SKIP_WITHOUT_GOLDEN(file);
    file_ = std::make_unique<Safetensors>(testing_support::GoldenFolder(file));
    tokens_ = file_->at("x").shape.at(0);
    inputs_ = file_->at("x").shape.at(1);
    outputs_ = file_->at("dy").shape.at(1);
  }

  void ExpectTiles(const std::string& name, int64_t columns) {
    Device device;
    const kernels::QuantizeTiles op = {
        .x = device.Put(file_->at(name).As<bfloat16>()),
        .rows = tokens_,
        .columns = columns,
        .tiles = {.by_rows = MakeQuantized(&device, Spec(tokens_, columns, Tile::k1x128)),
                  .by_columns = MakeQuantized(&device, Spec(columns, tokens_, Tile::k1x128)),
                  .nonfinite = nullptr}};
    ASSERT_TRUE(device->Run(op).ok());
    EXPECT_EQ(GetQuantized(&device, op.tiles.by_rows), Plain(name + "_row"));
    EXPECT_EQ(GetQuantized(&device, op.tiles.by_columns), Plain(name + "_col"));
  }

  PlainQuantized Plain(const std::string& name) {
    return {.codes = file_->at(name + ".codes").As<uint8_t>(),
            .scale_inv = file_->at(name + ".scale_inv").As<float>()};
  }

  QuantizedTensor Put(Device* device, const std::string& name, const QuantizedSpec& spec) {
    return PutQuantized(device, spec, Plain(name));
  }

  // Within the bound of a float32 sum over k terms, plus `rounding` of the value.
  void ExpectProduct(const std::string& name, const std::vector<double>& got, int64_t k,
                     double rounding) {
    const auto want = file_->at(name).As<float>();
    const auto magnitude = file_->at(name + ".magnitude").As<float>();
    ASSERT_EQ(got.size(), want.size());
    BoundShare share;
    for (size_t i = 0; i < want.size(); ++i) {
      const double sum = 4 * std::sqrt(static_cast<double>(k)) * std::ldexp(1, -24) *
                             static_cast<double>(magnitude[i]) +
                         std::ldexp(1, -126);
      const auto exact = static_cast<double>(want[i]);
      share.Add(got[i], exact, sum + rounding * std::fabs(exact));
    }
    EXPECT_TRUE(share.Holds(name.c_str()));
  }

  std::unique_ptr<Safetensors> file_;
  int64_t tokens_ = 0;
  int64_t inputs_ = 0;
  int64_t outputs_ = 0;
};

TEST_P(LinearGolden, ActivationsAndGradientsAreQuantisedToTheByte) {
  ExpectTiles("x", inputs_);
  ExpectTiles("dy", outputs_);
}

// [rows, columns], transposed.
template <typename T>
std::vector<T> Transposed(const std::vector<T>& x, int64_t rows, int64_t columns) {
  std::vector<T> result;
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) result.push_back(x[static_cast<size_t>(r * columns + c)]);
  return result;
}

PlainQuantized Transposed(const PlainQuantized& w, int64_t rows, int64_t columns) {
  return {
      .codes = Transposed(w.codes, rows, columns),
      .scale_inv = Transposed(w.scale_inv, kernels::TileCount(rows), kernels::TileCount(columns))};
}

TEST_P(LinearGolden, WeightsAreQuantisedToTheByteBothWays) {
  Device device;
  const kernels::QuantizeBlocks op = {
      .x = device.Put(file_->at("w_master").As<float>()),
      .rows = outputs_,
      .columns = inputs_,
      .normal = MakeQuantized(&device, Spec(outputs_, inputs_, Tile::k128x128)),
      .transposed = MakeQuantized(&device, Spec(inputs_, outputs_, Tile::k128x128)),
      .nonfinite = nullptr};
  ASSERT_TRUE(device->Run(op).ok());
  EXPECT_EQ(GetQuantized(&device, op.normal), Plain("w"));
  EXPECT_EQ(GetQuantized(&device, op.transposed), Transposed(Plain("w"), outputs_, inputs_));
}

TEST_P(LinearGolden, ForwardProductStaysWithinItsBound) {
  Device device;
  const int64_t count = tokens_ * outputs_;
  auto* const c = device.Make<float>(count);
  auto* const rounded = device.Make<bfloat16>(count);
  kernels::GemmFp8 product = {
      .a = Put(&device, "x_row", Spec(tokens_, inputs_, Tile::k1x128)),
      .b = Put(&device, "w", Spec(outputs_, inputs_, Tile::k128x128, Role::kB)),
      .bias = nullptr,
      .c = c,
      .c_type = ResultType::kFloat32,
      .accumulate = false};
  ASSERT_TRUE(device->Run(product).ok());
  ExpectProduct("fprop", testing_support::ToDouble(device.Get(c, count)), inputs_, 0);
  product.c = rounded;
  product.c_type = ResultType::kBfloat16;
  ASSERT_TRUE(device->Run(product).ok());
  ExpectProduct("fprop", testing_support::ToDouble(device.Get(rounded, count)), inputs_,
                std::ldexp(1, -8));
}

TEST_P(LinearGolden, InputGradientStaysWithinItsBound) {
  Device device;
  const int64_t count = tokens_ * inputs_;
  auto* const c = device.Make<float>(count);
  const QuantizedTensor weights =
      PutQuantized(&device, Spec(inputs_, outputs_, Tile::k128x128, Role::kB),
                   Transposed(Plain("w"), outputs_, inputs_));
  ASSERT_TRUE(
      device
          ->Run(kernels::GemmFp8{.a = Put(&device, "dy_row", Spec(tokens_, outputs_, Tile::k1x128)),
                                 .b = weights,
                                 .bias = nullptr,
                                 .c = c,
                                 .c_type = ResultType::kFloat32,
                                 .accumulate = false})
          .ok());
  ExpectProduct("dgrad", testing_support::ToDouble(device.Get(c, count)), outputs_, 0);
}

TEST_P(LinearGolden, WeightGradientStaysWithinItsBound) {
  Device device;
  const int64_t count = outputs_ * inputs_;
  auto* const c = device.Make<float>(count);
  ASSERT_TRUE(device
                  ->Run(kernels::GemmFp8{
                      .a = Put(&device, "dy_col", Spec(outputs_, tokens_, Tile::k1x128)),
                      .b = Put(&device, "x_col", Spec(inputs_, tokens_, Tile::k1x128, Role::kB)),
                      .bias = nullptr,
                      .c = c,
                      .c_type = ResultType::kFloat32,
                      .accumulate = false})
                  .ok());
  ExpectProduct("wgrad", testing_support::ToDouble(device.Get(c, count)), tokens_, 0);
}

INSTANTIATE_TEST_SUITE_P(Fp8, LinearGolden,
                         ::testing::Values("square", "wide", "ragged", "smollm2", "one_token"));

}  // namespace
}  // namespace octavo
