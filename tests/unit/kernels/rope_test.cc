// Rotary positions against float64.
#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

using testing_support::BoundShare;
using testing_support::Device;

constexpr int64_t kPositions = 50;

struct Table {
  std::vector<float> cosine;
  std::vector<float> sine;
};

Table MakeTable(int64_t half) {
  Table table;
  for (int64_t position = 0; position < kPositions; ++position) {
    for (int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(position) *
                           std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half));
      table.cosine.push_back(ToFloat(ToBfloat16(static_cast<float>(std::cos(angle)))));
      table.sine.push_back(ToFloat(ToBfloat16(static_cast<float>(std::sin(angle)))));
    }
  }
  return table;
}

std::vector<bfloat16> Rotate(const std::vector<bfloat16>& x, const std::vector<int32_t>& positions,
                             int64_t heads, int64_t head_dim, bool inverse) {
  Device device;
  const Table table = MakeTable(head_dim / 2);
  bfloat16* const in_place = device.Put(x);
  EXPECT_TRUE(device
                  ->Run(Rope{.x = in_place,
                             .cosine = device.Put(table.cosine),
                             .sine = device.Put(table.sine),
                             .positions = device.Put(positions),
                             .tokens = static_cast<int64_t>(positions.size()),
                             .heads = heads,
                             .head_dim = head_dim,
                             .inverse = inverse})
                  .ok());
  return device.Get(in_place, static_cast<int64_t>(x.size()));
}

// Rounded once from the exact rotation.
BoundShare Share(const std::vector<bfloat16>& x, const std::vector<int32_t>& positions,
                 int64_t heads, int64_t head_dim, const std::vector<bfloat16>& got, double turn) {
  const int64_t half = head_dim / 2;
  const Table table = MakeTable(half);
  const std::vector<double> in = testing_support::ToDouble(x);
  const std::vector<double> out = testing_support::ToDouble(got);
  BoundShare share;
  for (size_t t = 0; t < positions.size(); ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t j = 0; j < half; ++j) {
        const auto low =
            t * static_cast<size_t>(heads * head_dim) + static_cast<size_t>(head * head_dim + j);
        const size_t high = low + static_cast<size_t>(half);
        const auto at = static_cast<size_t>(positions[t] * half + j);
        const auto c = static_cast<double>(table.cosine[at]);
        const double s = static_cast<double>(table.sine[at]) * turn;
        const double first = in[low] * c - in[high] * s;
        const double second = in[high] * c + in[low] * s;
        const double size = std::ldexp(std::fabs(in[low]) + std::fabs(in[high]), -22);
        share.Add(out[low], first, std::ldexp(std::fabs(first), -8) + size);
        share.Add(out[high], second, std::ldexp(std::fabs(second), -8) + size);
      }
    }
  }
  return share;
}

class RopeOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(RopeOn);

TEST_P(RopeOn, RotatesPairsHalfAHeadApartByTheTokensPosition) {
  const std::vector<int32_t> positions = {0, 1, 2, 0, 49, 7};
  for (const int64_t head_dim : {2, 30, 32, 64, 66, 128}) {
    const auto x = testing_support::NormalBfloat16(6 * 3 * head_dim, 1);
    const auto turned = Rotate(x, positions, 3, head_dim, false);
    const auto back = Rotate(x, positions, 3, head_dim, true);
    EXPECT_TRUE(Share(x, positions, 3, head_dim, turned, 1).Holds("forward"));
    EXPECT_TRUE(Share(x, positions, 3, head_dim, back, -1).Holds("inverse"));
    EXPECT_GT(Share(x, positions, 3, head_dim, turned, -1).largest(), 1);
  }
}

TEST_P(RopeOn, PositionZeroChangesNothing) {
  const auto x = testing_support::NormalBfloat16(2 * 64, 1);
  EXPECT_EQ(testing_support::Bits(Rotate(x, {0, 0}, 1, 64, false)), testing_support::Bits(x));
}

// The queries of a matrix that holds keys and values beside them.
TEST(Rope, TurnsASliceAndLeavesWhatLiesBesideIt) {
  const std::vector<int32_t> positions = {3, 1, 4};
  const int64_t columns = 2 * 32, pitch = columns + 40;
  const auto x = testing_support::NormalBfloat16(3 * columns, 1);
  const auto wide = testing_support::NormalBfloat16(3 * pitch, 2);
  std::vector<bfloat16> mixed = wide;
  for (int64_t t = 0; t < 3; ++t)
    std::copy_n(x.begin() + t * columns, columns, mixed.begin() + t * pitch);
  Device device;
  const Table table = MakeTable(16);
  bfloat16* const in_place = device.Put(mixed);
  Rope op = {.x = in_place,
             .cosine = device.Put(table.cosine),
             .sine = device.Put(table.sine),
             .positions = device.Put(positions),
             .tokens = 3,
             .heads = 2,
             .head_dim = 32,
             .inverse = false,
             .pitch = pitch};
  ASSERT_TRUE(device->Run(op).ok());
  const auto turned = Rotate(x, positions, 2, 32, false);
  for (int64_t t = 0; t < 3; ++t)
    std::copy_n(turned.begin() + t * columns, columns, mixed.begin() + t * pitch);
  EXPECT_EQ(testing_support::Bits(device.Get(in_place, 3 * pitch)), testing_support::Bits(mixed));
  op.pitch = columns - 1;
  EXPECT_EQ(device->Run(op).message(), "Rope: pitch is 63, must be 0 or at least 64");
}

TEST(Rope, RefusesAnOddHead) {
  Device device;
  EXPECT_EQ(device
                ->Run(Rope{.x = nullptr,
                           .cosine = nullptr,
                           .sine = nullptr,
                           .positions = nullptr,
                           .tokens = 1,
                           .heads = 1,
                           .head_dim = 5,
                           .inverse = false})
                .message(),
            "Rope: head_dim 5 is odd");
}

}  // namespace
}  // namespace octavo::kernels
