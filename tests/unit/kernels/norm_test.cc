// RMSNorm against float64, within the bounds of kernels/ops/norm.h.
#include <cmath>
#include <functional>
#include <limits>
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
using Row = std::vector<double>;

constexpr double kEpsilon = 1e-5;
constexpr int64_t kSizes[] = {1, 31, 32, 33, 127, 128, 129, 576};

double InverseRms(const Row& x, double epsilon = kEpsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
}

Row Normalise(const Row& x, const Row& weight) {
  Row y;
  for (size_t c = 0; c < x.size(); ++c) y.push_back(x[c] * InverseRms(x) * weight[c]);
  return y;
}

struct Gradients {
  Row dx;
  Row dx_magnitude;  // sum of the absolute terms
  Row dweight;
};

Gradients Differentiate(const Row& dy, const Row& x, const Row& weight) {
  const double r = InverseRms(x);
  const auto columns = static_cast<double>(x.size());
  double mean = 0;
  double mean_magnitude = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    mean += dy[c] * weight[c] * x[c] / columns;
    mean_magnitude += std::fabs(dy[c] * weight[c] * x[c]) / columns;
  }
  Gradients result;
  for (size_t c = 0; c < x.size(); ++c) {
    const double g = dy[c] * weight[c];
    result.dx.push_back(r * (g - x[c] * r * r * mean));
    result.dx_magnitude.push_back(r * (std::fabs(g) + std::fabs(x[c]) * r * r * mean_magnitude));
    result.dweight.push_back(dy[c] * x[c] * r);
  }
  return result;
}

Row RowOf(const std::vector<double>& x, int64_t row, int64_t columns) {
  return Row(x.begin() + row * columns, x.begin() + (row + 1) * columns);
}

struct Case {
  int64_t rows = 5;
  int64_t columns;
  std::vector<bfloat16> x = testing_support::NormalBfloat16(rows * columns, 1, 3.0f);
  std::vector<bfloat16> weight = testing_support::NormalBfloat16(columns, 2);
  std::vector<bfloat16> dy = testing_support::NormalBfloat16(rows * columns, 3);
};

struct ForwardResult {
  std::vector<double> y;
  std::vector<float> inverse_rms;
};

ForwardResult RunForward(const Case& c) {
  Device device;
  const RmsNormForward op = {.x = device.Put(c.x),
                             .weight = device.Put(c.weight),
                             .y = device.Make<bfloat16>(c.rows * c.columns),
                             .inverse_rms = device.Make<float>(c.rows),
                             .rows = c.rows,
                             .columns = c.columns,
                             .epsilon = static_cast<float>(kEpsilon)};
  EXPECT_TRUE(device->Run(op).ok());
  return {testing_support::ToDouble(device.Get(op.y, c.rows * c.columns)),
          device.Get(op.inverse_rms, c.rows)};
}

BoundShare ForwardShare(const Case& c, const ForwardResult& result, double slip = 0) {
  BoundShare share;
  const Row weight = testing_support::ToDouble(c.weight);
  for (int64_t row = 0; row < c.rows; ++row) {
    const Row want = Normalise(RowOf(testing_support::ToDouble(c.x), row, c.columns), weight);
    const double relative =
        2 * std::ldexp(1, -8) + static_cast<double>(c.columns) * std::ldexp(1, -24);
    for (int64_t i = 0; i < c.columns; ++i) {
      const double exact = want[static_cast<size_t>(i)] * (1 + slip);
      share.Add(result.y[static_cast<size_t>(row * c.columns + i)], exact,
                relative * std::fabs(exact) + std::ldexp(1, -133));
    }
  }
  return share;
}

class NormOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(NormOn);

TEST_P(NormOn, ForwardStaysWithinItsBoundForEveryWidth) {
  for (const int64_t columns : kSizes) {
    const Case c = {.columns = columns};
    const ForwardResult result = RunForward(c);
    EXPECT_TRUE(ForwardShare(c, result).Holds("y"));
    EXPECT_GT(ForwardShare(c, result, 0.02).largest(), 1);
    for (int64_t row = 0; row < c.rows; ++row) {
      const double want = InverseRms(RowOf(testing_support::ToDouble(c.x), row, columns));
      EXPECT_NEAR(static_cast<double>(result.inverse_rms[static_cast<size_t>(row)]), want,
                  want * (static_cast<double>(columns) + 4) * std::ldexp(1, -24));
    }
  }
}

TEST_P(NormOn, AZeroRowStaysZeroAndLargeRowsDoNotOverflow) {
  Case c = {.rows = 2, .columns = 64};
  std::fill_n(c.x.begin(), 64, ToBfloat16(0.0f));
  std::fill_n(c.x.begin() + 64, 64, ToBfloat16(1e18f));
  const ForwardResult result = RunForward(c);
  EXPECT_TRUE(ForwardShare(c, result).Holds("y"));
  EXPECT_EQ(result.y[0], 0.0);
}

// A sum of squares beyond float32 gives r = 0: the row becomes 0, and nothing but the counter says
// so.
TEST(RmsNormForward, CountsRowsWhoseSumOfSquaresLeavesFloat32) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Device device;
  std::vector<bfloat16> x;
  for (const float value : {1.0f, 1e18f, 3e19f, kInfinity, kNaN, 0.0f})
    x.insert(x.end(), 40, ToBfloat16(value));
  RmsNormForward op = {.x = device.Put(x),
                       .weight = device.Put(std::vector<bfloat16>(40, ToBfloat16(1.0f))),
                       .y = device.Make<bfloat16>(240),
                       .inverse_rms = device.Make<float>(6),
                       .rows = 6,
                       .columns = 40,
                       .epsilon = static_cast<float>(kEpsilon),
                       .nonfinite = device.Put<uint64_t>({10})};
  ASSERT_TRUE(device->Run(op).ok());
  EXPECT_EQ(device.Get(op.nonfinite, 1)[0], 13u);
  EXPECT_EQ(device.Get(op.inverse_rms, 6)[2], 0.0f);
  op.inverse_rms = nullptr;
  EXPECT_EQ(device->Run(op).message(), "RmsNormForward: inverse_rms is null");
}

TEST(RmsNormForward, MayWriteOverItsInputAndLeaveOutTheInverse) {
  Device device;
  const Case c = {.columns = 129};
  bfloat16* const x = device.Put(c.x);
  ASSERT_TRUE(device
                  ->Run(RmsNormForward{.x = x,
                                       .weight = device.Put(c.weight),
                                       .y = x,
                                       .inverse_rms = nullptr,
                                       .rows = c.rows,
                                       .columns = c.columns,
                                       .epsilon = static_cast<float>(kEpsilon)})
                  .ok());
  EXPECT_EQ(testing_support::ToDouble(device.Get(x, c.rows * c.columns)), RunForward(c).y);
}

TEST(RmsNormBackward, TheReferenceAgreesWithDifferences) {
  const Case c = {.rows = 1, .columns = 33};
  const Row weight = testing_support::ToDouble(c.weight);
  const Row dy = testing_support::ToDouble(c.dy);
  Row x = testing_support::ToDouble(c.x);
  const Gradients gradients = Differentiate(dy, x, weight);
  const auto loss = [&](const Row& at, const Row& with) {
    double sum = 0;
    const Row y = Normalise(at, with);
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  for (size_t i = 0; i < x.size(); ++i) {
    Row up = x;
    Row down = x;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR((loss(up, weight) - loss(down, weight)) / 2e-5, gradients.dx[i], 1e-7);
    Row heavier = weight;
    heavier[i] += 1;
    EXPECT_NEAR(loss(x, heavier) - loss(x, weight), gradients.dweight[i], 1e-9);
  }
}

struct BackwardResult {
  std::vector<double> dx;
  std::vector<float> dweight;
  bool operator==(const BackwardResult&) const = default;
};

// With `add`, the residual's gradient lies in dx beforehand; dweight starts from 1.
BackwardResult RunBackward(const Case& c, bool add, int threads = 2) {
  Device device(threads);
  const int64_t count = c.rows * c.columns;
  bfloat16* const dx = device.Put(c.dy);
  const RmsNormBackward op = {
      .dy = device.Put(c.dy),
      .x = device.Put(c.x),
      .weight = device.Put(c.weight),
      .inverse_rms = device.Put(RunForward(c).inverse_rms),
      .dx_add = add ? dx : nullptr,
      .dx = dx,
      .dweight = device.Put(std::vector<float>(static_cast<size_t>(c.columns), 1.0f)),
      .rows = c.rows,
      .columns = c.columns};
  EXPECT_TRUE(device->Run(op).ok());
  return {testing_support::ToDouble(device.Get(dx, count)), device.Get(op.dweight, c.columns)};
}

TEST_P(NormOn, BackwardStaysWithinItsBoundWithAndWithoutTheResidual) {
  for (const int64_t columns : kSizes) {
    const Case c = {.rows = 130, .columns = columns};
    const Row weight = testing_support::ToDouble(c.weight);
    for (const bool add : {false, true}) {
      const BackwardResult result = RunBackward(c, add);
      BoundShare dx_share;
      BoundShare wrong;
      Row dweight(static_cast<size_t>(columns), 1.0);
      Row dweight_magnitude(static_cast<size_t>(columns), 1.0);
      for (int64_t row = 0; row < c.rows; ++row) {
        const Row dy = RowOf(testing_support::ToDouble(c.dy), row, columns);
        const Gradients want =
            Differentiate(dy, RowOf(testing_support::ToDouble(c.x), row, columns), weight);
        for (size_t i = 0; i < dy.size(); ++i) {
          const double exact = want.dx[i] + (add ? dy[i] : 0);
          const double magnitude = want.dx_magnitude[i] + (add ? std::fabs(dy[i]) : 0);
          const double bound = std::ldexp(std::fabs(exact), -8) +
                               (static_cast<double>(columns) + 8) * std::ldexp(magnitude, -24);
          const double got = result.dx[static_cast<size_t>(row * columns) + i];
          dx_share.Add(got, exact, bound);
          wrong.Add(got, exact + 0.02 * magnitude, bound);
          dweight[i] += want.dweight[i];
          dweight_magnitude[i] += std::fabs(want.dweight[i]);
        }
      }
      EXPECT_TRUE(dx_share.Holds("dx"));
      EXPECT_GT(wrong.largest(), 1);
      BoundShare dweight_share;
      for (size_t i = 0; i < dweight.size(); ++i) {
        dweight_share.Add(
            static_cast<double>(result.dweight[i]), dweight[i],
            static_cast<double>(c.rows + columns) * std::ldexp(dweight_magnitude[i], -24));
      }
      EXPECT_TRUE(dweight_share.Holds("dweight"));
    }
  }
}

TEST_P(NormOn, ThreadsDoNotChangeTheBits) {
  const Case c = {.rows = 300, .columns = 200};
  EXPECT_EQ(RunBackward(c, true, 1), RunBackward(c, true, 3));
}

}  // namespace
}  // namespace octavo::kernels
