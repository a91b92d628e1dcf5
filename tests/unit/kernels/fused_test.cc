// Fused operations byte for byte against the two operations that they stand for, run in turn.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/numerics/element.h"
#include "tests/support/device.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"
#include "tests/support/pitched.h"
#include "tests/support/quantized.h"

namespace octavo::kernels {
namespace {

using testing_support::Bits;
using testing_support::Device;
using testing_support::GetQuantized;
using testing_support::MakeQuantized;
using testing_support::PlainQuantized;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t count() const { return rows * columns; }
};
constexpr Shape kShapes[] = {{1, 1}, {1, 129}, {31, 33}, {128, 128}, {130, 257}, {300, 64}};

// Numbers whose size changes by 2^20, with zeros, extremes, infinities and NaN strewn in.
std::vector<bfloat16> Numbers(int64_t count, unsigned seed) {
  const float extremes[] = {0.0f, -0.0f, 1e-40f, 448.0f, 3e38f, -kInfinity, kNaN, 1e-30f};
  std::vector<float> x = testing_support::Normal(count, seed);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i % 41) - 20);
    if (i % 97 == 13) x[i] = extremes[(i / 97 + seed) % std::size(extremes)];
  }
  return testing_support::ToBfloat16(x);
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// Where an operation puts a matrix of BF16 numbers.
enum class Store { kNowhere, kApart, kOverAnInput };
constexpr Store kStores[] = {Store::kNowhere, Store::kApart, Store::kOverAnInput};

struct Tiles {
  PlainQuantized by_rows;
  PlainQuantized by_columns;
  uint64_t nonfinite;
  bool operator==(const Tiles&) const = default;
};

TileOutputs MakeTiles(Device* device, const Shape& shape, Element element) {
  QuantizedSpec rows = {.rows = shape.rows,
                        .columns = shape.columns,
                        .element = element,
                        .tile = Tile::k1x128,
                        .role = Role::kA};
  QuantizedSpec columns = rows;
  std::swap(columns.rows, columns.columns);
  return {.by_rows = MakeQuantized(device, rows),
          .by_columns = MakeQuantized(device, columns),
          .nonfinite = device->Put<uint64_t>({5})};
}

Tiles Get(Device* device, const TileOutputs& tiles) {
  return {.by_rows = GetQuantized(device, tiles.by_rows),
          .by_columns = GetQuantized(device, tiles.by_columns),
          .nonfinite = device->Get(tiles.nonfinite, 1)[0]};
}

Tiles QuantizeAlone(Device* device, const bfloat16* x, const Shape& shape, Element element) {
  const QuantizeTiles op = {.x = x,
                            .rows = shape.rows,
                            .columns = shape.columns,
                            .tiles = MakeTiles(device, shape, element)};
  EXPECT_TRUE((*device)->Run(op).ok());
  return Get(device, op.tiles);
}

bfloat16* PlaceOf(Store store, Device* device, bfloat16* input, int64_t count) {
  if (store == Store::kNowhere) return nullptr;
  return store == Store::kApart ? device->Make<bfloat16>(count) : input;
}

std::vector<uint16_t> Stored(Device* device, const bfloat16* matrix, int64_t count) {
  return matrix == nullptr ? std::vector<uint16_t>() : Bits(device->Get(matrix, count));
}

class FusedOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(FusedOn);

struct NormResult {
  std::vector<uint16_t> y;  // empty: not stored
  std::vector<uint32_t> inverse_rms;
  uint64_t nonfinite_rows;
  Tiles tiles;
  bool operator==(const NormResult&) const = default;
};

struct NormCase {
  Shape shape;
  Element element = Element::kE4M3;
  Store store = Store::kApart;
  int threads = 2;
};

RmsNormForward MakeNorm(Device* device, const Shape& shape, Store store) {
  bfloat16* const x = device->Put(Numbers(shape.count(), 1));
  return {.x = x,
          .weight = device->Put(testing_support::NormalBfloat16(shape.columns, 2)),
          .y = PlaceOf(store, device, x, shape.count()),
          .inverse_rms = device->Make<float>(shape.rows),
          .rows = shape.rows,
          .columns = shape.columns,
          .epsilon = 1e-5f,
          .nonfinite = device->Put<uint64_t>({3})};
}

NormResult Collect(Device* device, const RmsNormForward& norm, const Tiles& tiles) {
  return {.y = Stored(device, norm.y, norm.rows * norm.columns),
          .inverse_rms = Bits(device->Get(norm.inverse_rms, norm.rows)),
          .nonfinite_rows = device->Get(norm.nonfinite, 1)[0],
          .tiles = tiles};
}

NormResult NormInTurn(const NormCase& c) {
  Device device(c.threads);
  const RmsNormForward norm = MakeNorm(&device, c.shape, Store::kApart);
  EXPECT_TRUE(device->Run(norm).ok());
  NormResult result = Collect(&device, norm, QuantizeAlone(&device, norm.y, c.shape, c.element));
  if (c.store == Store::kNowhere) result.y.clear();
  return result;
}

NormResult NormFused(const NormCase& c) {
  Device device(c.threads);
  const RmsNormQuantize op = {.norm = MakeNorm(&device, c.shape, c.store),
                              .tiles = MakeTiles(&device, c.shape, c.element)};
  EXPECT_TRUE(device->Run(op).ok());
  return Collect(&device, op.norm, Get(&device, op.tiles));
}

TEST_P(FusedOn, RmsNormQuantizeEqualsTheTwoInTurn) {
  for (const Shape& shape : kShapes) {
    for (const Element element : {Element::kE4M3, Element::kE5M2}) {
      for (const Store store : kStores) {
        const NormCase c = {.shape = shape, .element = element, .store = store};
        EXPECT_EQ(NormFused(c), NormInTurn(c)) << shape.rows << " x " << shape.columns;
      }
    }
  }
}

// What a fusion tempts to: quantising the float32 result that a register holds.
TEST_P(FusedOn, RmsNormQuantizeTakesTheResultAsRoundedToBfloat16) {
  const Shape shape = {.rows = 3, .columns = 128};
  Device device;
  RmsNormQuantize op = {.norm = MakeNorm(&device, shape, Store::kNowhere),
                        .tiles = MakeTiles(&device, shape, Element::kE4M3)};
  const auto x = testing_support::NormalBfloat16(shape.count(), 4);
  op.norm.x = device.Put(x);
  ASSERT_TRUE(device->Run(op).ok());
  const std::vector<float> r = device.Get(op.norm.inverse_rms, shape.rows);
  const std::vector<bfloat16> weight = device.Get(op.norm.weight, shape.columns);
  const PlainQuantized got = GetQuantized(&device, op.tiles.by_rows);
  PlainQuantized rounded = got, unrounded = got;
  for (size_t i = 0; i < x.size(); ++i) {
    const float scale = 1 / got.scale_inv[i / 128];
    const float y = ToFloat(ToBfloat16(ToFloat(x[i]) * r[i / 128])) * ToFloat(weight[i % 128]);
    rounded.codes[i] = FloatToE4m3(ToFloat(ToBfloat16(y)) * scale);
    unrounded.codes[i] = FloatToE4m3(y * scale);
  }
  EXPECT_EQ(got, rounded);
  EXPECT_NE(got, unrounded);
}

TEST_P(FusedOn, SwigluQuantizeEqualsTheTwoInTurn) {
  for (const Shape& shape : kShapes) {
    for (const Store store : kStores) {
      Device device;
      const int64_t count = shape.count();
      bfloat16* const gate = device.Put(Numbers(count, 1));
      SwigluForward alone = {.gate = gate,
                             .up = device.Put(Numbers(count, 2)),
                             .y = device.Make<bfloat16>(count),
                             .rows = shape.rows,
                             .columns = shape.columns};
      ASSERT_TRUE(device->Run(alone).ok());
      const Tiles want = QuantizeAlone(&device, alone.y, shape, Element::kE4M3);
      SwigluQuantize op = {.swiglu = alone, .tiles = MakeTiles(&device, shape, Element::kE4M3)};
      op.swiglu.y = PlaceOf(store, &device, gate, count);
      ASSERT_TRUE(device->Run(op).ok());
      EXPECT_EQ(Get(&device, op.tiles), want) << shape.rows << " x " << shape.columns;
      if (store == Store::kNowhere) continue;
      EXPECT_EQ(Stored(&device, op.swiglu.y, count), Stored(&device, alone.y, count));
    }
  }
}

struct GradientsResult {
  std::vector<uint16_t> dgate;
  std::vector<uint16_t> dup;
  Tiles dgate_tiles;
  Tiles dup_tiles;
  bool operator==(const GradientsResult&) const = default;
};

struct GradientsCase {
  Shape shape;
  Element dgate;
  Element dup;
};

SwigluBackward MakeSwigluBackward(Device* device, const Shape& shape) {
  bfloat16* const gate = device->Put(Numbers(shape.count(), 1));
  bfloat16* const up = device->Put(Numbers(shape.count(), 2));
  return {.dy = device->Put(Numbers(shape.count(), 3)),
          .gate = gate,
          .up = up,
          .dgate = gate,
          .dup = up,
          .rows = shape.rows,
          .columns = shape.columns};
}

GradientsResult GradientsInTurn(const GradientsCase& c) {
  Device device;
  const SwigluBackward op = MakeSwigluBackward(&device, c.shape);
  EXPECT_TRUE(device->Run(op).ok());
  return {.dgate = Stored(&device, op.dgate, c.shape.count()),
          .dup = Stored(&device, op.dup, c.shape.count()),
          .dgate_tiles = QuantizeAlone(&device, op.dgate, c.shape, c.dgate),
          .dup_tiles = QuantizeAlone(&device, op.dup, c.shape, c.dup)};
}

GradientsResult GradientsFused(const GradientsCase& c, bool store_dgate, bool store_dup) {
  Device device;
  SwigluBackwardQuantize op = {.swiglu = MakeSwigluBackward(&device, c.shape),
                               .dgate_tiles = MakeTiles(&device, c.shape, c.dgate),
                               .dup_tiles = MakeTiles(&device, c.shape, c.dup)};
  if (!store_dgate) op.swiglu.dgate = nullptr;
  if (!store_dup) op.swiglu.dup = nullptr;
  EXPECT_TRUE(device->Run(op).ok());
  return {.dgate = Stored(&device, op.swiglu.dgate, c.shape.count()),
          .dup = Stored(&device, op.swiglu.dup, c.shape.count()),
          .dgate_tiles = Get(&device, op.dgate_tiles),
          .dup_tiles = Get(&device, op.dup_tiles)};
}

TEST_P(FusedOn, SwigluBackwardQuantizeEqualsTheThreeInTurn) {
  for (const Shape& shape : kShapes) {
    const GradientsCase c = {.shape = shape, .dgate = Element::kE4M3, .dup = Element::kE5M2};
    const GradientsResult want = GradientsInTurn(c);
    EXPECT_EQ(GradientsFused(c, true, true), want) << shape.rows << " x " << shape.columns;
    GradientsResult without = want;
    without.dgate.clear();
    EXPECT_EQ(GradientsFused(c, false, true), without);
    without.dup.clear();
    EXPECT_EQ(GradientsFused(c, false, false), without);
    EXPECT_NE(want.dgate_tiles.by_rows, want.dup_tiles.by_rows);
  }
}

struct Heads {
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t rows() const { return tokens * heads; }
  int64_t columns() const { return heads * head_dim; }
};
constexpr Heads kHeads[] = {{1, 1, 2}, {5, 3, 64}, {33, 9, 128}, {130, 2, 34}};

Rope MakeRope(Device* device, const Heads& heads, bfloat16* x, bool inverse) {
  constexpr int64_t kPositions = 40;
  const int64_t half = heads.head_dim / 2;
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < heads.tokens; ++t)
    positions.push_back(static_cast<int32_t>(t * 7 % kPositions));
  return {.x = x,
          .cosine = device->Put(testing_support::Normal(kPositions * half, 8)),
          .sine = device->Put(testing_support::Normal(kPositions * half, 9)),
          .positions = device->Put(positions),
          .tokens = heads.tokens,
          .heads = heads.heads,
          .head_dim = heads.head_dim,
          .inverse = inverse};
}

RmsNormForward MakeHeadNorm(Device* device, const Heads& heads) {
  return MakeNorm(device, {.rows = heads.rows(), .columns = heads.head_dim}, Store::kNowhere);
}

TEST_P(FusedOn, HeadNormRopeEqualsTheTwoInTurn) {
  for (const Heads& heads : kHeads) {
    Device device;
    const int64_t count = heads.tokens * heads.columns();
    const int64_t pitch = heads.columns() + 11;
    RmsNormForward norm = MakeHeadNorm(&device, heads);
    norm.y = device.Make<bfloat16>(count);
    ASSERT_TRUE(device->Run(norm).ok());
    const Rope rope = MakeRope(&device, heads, norm.y, false);
    ASSERT_TRUE(device->Run(rope).ok());

    HeadNormRope fused = {.norm = MakeHeadNorm(&device, heads), .rope = rope};
    fused.rope.x = device.Make<bfloat16>(heads.tokens * pitch);
    fused.rope.pitch = pitch;
    ASSERT_TRUE(device->Run(fused).ok());
    EXPECT_EQ(
        Bits(testing_support::GetRows(&device, fused.rope.x, heads.tokens, heads.columns(), pitch)),
        Bits(device.Get(norm.y, count)));
    EXPECT_EQ(Bits(device.Get(fused.norm.inverse_rms, heads.rows())),
              Bits(device.Get(norm.inverse_rms, heads.rows())));
    EXPECT_EQ(device.Get(fused.norm.nonfinite, 1), device.Get(norm.nonfinite, 1));
  }
}

struct HeadGradients {
  std::vector<uint16_t> dx;
  std::vector<uint32_t> dweight;
  bool operator==(const HeadGradients&) const = default;
};

struct HeadCase {
  Heads heads;
  bool fused;
  bool residual = false;
  bool norm_first = false;  // the wrong order
  int64_t gap = 0;          // between the tokens of the gradient that comes in
  int threads = 2;
};

HeadGradients RunHeadBackward(const HeadCase& c) {
  Device device(c.threads);
  const int64_t count = c.heads.tokens * c.heads.columns();
  // Where nothing is NaN: the order of two NaN in a sum decides the sign of the result.
  const Rope rope =
      MakeRope(&device, c.heads, device.Put(testing_support::NormalBfloat16(count, 1)), true);
  RmsNormBackward norm = {
      .dy = rope.x,
      .x = device.Put(testing_support::NormalBfloat16(count, 2)),
      .weight = device.Put(testing_support::NormalBfloat16(c.heads.head_dim, 3)),
      .inverse_rms = device.Put(testing_support::Normal(c.heads.rows(), 4)),
      .dx_add = c.residual ? device.Put(testing_support::NormalBfloat16(count, 5)) : nullptr,
      .dx = device.Make<bfloat16>(count),
      .dweight = device.Put(testing_support::Normal(c.heads.head_dim, 6)),
      .rows = c.heads.rows(),
      .columns = c.heads.head_dim};
  if (c.fused) {
    HeadNormRopeBackward fused = {.rope = rope, .norm = norm};
    fused.norm.dy = nullptr;
    fused.rope.pitch = c.heads.columns() + c.gap;
    fused.rope.x = testing_support::PutRows(&device, testing_support::NormalBfloat16(count, 1),
                                            c.heads.columns(), fused.rope.pitch);
    EXPECT_TRUE(device->Run(fused).ok());
  } else {
    const Program in_turn =
        c.norm_first ? Program{Operation(norm), rope} : Program{Operation(rope), norm};
    EXPECT_TRUE(device->Run(in_turn).ok());
  }
  return {.dx = Bits(device.Get(norm.dx, count)),
          .dweight = Bits(device.Get(norm.dweight, c.heads.head_dim))};
}

TEST_P(FusedOn, HeadNormRopeBackwardEqualsTheTwoInTurn) {
  for (const Heads& heads : kHeads) {
    for (const bool residual : {false, true}) {
      const HeadGradients got =
          RunHeadBackward({.heads = heads, .fused = true, .residual = residual});
      EXPECT_EQ(got, RunHeadBackward({.heads = heads, .fused = false, .residual = residual}));
      EXPECT_EQ(got,
                RunHeadBackward({.heads = heads, .fused = true, .residual = residual, .gap = 5}));
      EXPECT_NE(got,
                RunHeadBackward(
                    {.heads = heads, .fused = false, .residual = residual, .norm_first = true}));
    }
  }
}

TEST(Fused, ThreadsDoNotChangeTheBytes) {
  const NormCase one = {.shape = {300, 400}, .threads = 1};
  NormCase three = one;
  three.threads = 3;
  EXPECT_EQ(NormFused(one), NormFused(three));
  const Heads heads = {.tokens = 300, .heads = 3, .head_dim = 64};
  EXPECT_EQ(RunHeadBackward({.heads = heads, .fused = true, .threads = 1}),
            RunHeadBackward({.heads = heads, .fused = true, .threads = 3}));
}

TEST(Fused, WhatDoesNotFitIsRefusedByName) {
  Device device;
  const Shape shape = {.rows = 4, .columns = 6};
  const RmsNormQuantize norm = {.norm = MakeNorm(&device, shape, Store::kNowhere),
                                .tiles = MakeTiles(&device, shape, Element::kE4M3)};
  RmsNormQuantize bad_norm = norm;
  bad_norm.norm.inverse_rms = nullptr;
  EXPECT_EQ(device->Run(bad_norm).message(), "RmsNormQuantize: inverse_rms is null");
  bad_norm = norm;
  bad_norm.tiles.by_rows.spec.rows = 5;
  EXPECT_EQ(device->Run(bad_norm).message(),
            "RmsNormQuantize: tiles.by_rows is 5 x 6, must be 4 x 6");
  EXPECT_EQ(device->Run(norm.norm).message(), "RmsNormForward: y is null");

  SwigluBackwardQuantize gradients = {.swiglu = MakeSwigluBackward(&device, shape),
                                      .dgate_tiles = norm.tiles,
                                      .dup_tiles = norm.tiles};
  std::swap(gradients.dup_tiles.by_rows, gradients.dup_tiles.by_columns);
  EXPECT_EQ(device->Run(gradients).message(),
            "SwigluBackwardQuantize: dup_tiles.by_rows is 6 x 4, must be 4 x 6");

  const Heads heads = {.tokens = 2, .heads = 2, .head_dim = 6};
  HeadNormRope rope = {.norm = norm.norm,
                       .rope = MakeRope(&device, heads, device.Make<bfloat16>(24), false)};
  EXPECT_TRUE(device->Run(rope).ok());
  rope.rope.heads = 1;
  EXPECT_EQ(device->Run(rope).message(),
            "HeadNormRope: norm.rows is 4, must be rope.tokens * rope.heads, 2");
  rope.rope.heads = 2;
  rope.norm.y = rope.rope.x;
  EXPECT_EQ(device->Run(rope).message(),
            "HeadNormRope: norm.y must be null: rope.x takes the result");
}

}  // namespace
}  // namespace octavo::kernels
