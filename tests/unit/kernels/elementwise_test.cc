// Elementwise operations and sums against float64.
#include <cmath>
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

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kSizes[] = {1, 31, 32, 33, 127, 128, 129, 20000};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class ElementwiseOn : public testing_support::EveryInstructionSet {};
OCTAVO_ON_EVERY_INSTRUCTION_SET(ElementwiseOn);

TEST_P(ElementwiseOn, AddRoundsTheFloat32SumOnceAndMayWriteOverAnOperand) {
  for (const int64_t count : kSizes) {
    Device device;
    const std::vector<bfloat16> a = testing_support::NormalBfloat16(count, 1);
    const std::vector<bfloat16> b = testing_support::NormalBfloat16(count, 2, 100.0f);
    bfloat16* const y = device.Put(a);
    ASSERT_TRUE(device->Run(Add{.a = y, .b = device.Put(b), .y = y, .count = count}).ok());
    std::vector<bfloat16> want;
    for (size_t i = 0; i < a.size(); ++i) want.push_back(ToBfloat16(ToFloat(a[i]) + ToFloat(b[i])));
    EXPECT_EQ(testing_support::Bits(device.Get(y, count)), testing_support::Bits(want));
  }
}

TEST_P(ElementwiseOn, CastToBfloat16RoundsAsTheScalarRuleIncludingExtremes) {
  std::vector<float> x = testing_support::Normal(133, 1, 1e20f);
  for (const float extreme : {0.0f, -0.0f, 1e-45f, 3.4e38f, kInfinity, -kInfinity, kNaN, -kNaN})
    x.push_back(extreme);
  std::vector<bfloat16> want;
  for (const float value : x) want.push_back(ToBfloat16(value));
  Device device;
  const auto count = static_cast<int64_t>(x.size());
  bfloat16* const y = device.Make<bfloat16>(count);
  ASSERT_TRUE(device->Run(CastToBfloat16{.x = device.Put(x), .y = y, .count = count}).ok());
  EXPECT_EQ(testing_support::Bits(device.Get(y, count)), testing_support::Bits(want));
}

TEST(CastToBfloat16, CountsWhatIsNotFiniteInBfloat16) {
  Device device;
  constexpr int64_t kCount = 20000;  // several chunks
  std::vector<float> x(kCount, 3.38e38f);
  x[0] = 3.4e38f;  // finite in float32, but nearer to 2^128 than to BF16's largest number
  x[8191] = kNaN, x[8192] = -kInfinity, x[kCount - 1] = kInfinity;
  uint64_t* const nonfinite = device.Put<uint64_t>({7});
  ASSERT_TRUE(device
                  ->Run(CastToBfloat16{.x = device.Put(x),
                                       .y = device.Make<bfloat16>(kCount),
                                       .count = kCount,
                                       .nonfinite = nonfinite})
                  .ok());
  EXPECT_EQ(device.Get(nonfinite, 1)[0], 11u);
}

TEST(CountedOperations, DoNothingForNoElements) {
  Device device;
  EXPECT_TRUE(device->Run(Add{.a = nullptr, .b = nullptr, .y = nullptr, .count = 0}).ok());
  EXPECT_EQ(device->Run(Add{.a = nullptr, .b = nullptr, .y = nullptr, .count = -1}).message(),
            "Add: count is -1, must not be negative");
  EXPECT_EQ(device->Run(CastToBfloat16{.x = nullptr, .y = nullptr, .count = 2}).message(),
            "CastToBfloat16: x is null");
}

// Of a matrix with so many elements.
int64_t RowsOf(int64_t count) { return count % 4 == 0 ? 4 : 1; }

std::vector<double> RunSwiglu(const std::vector<bfloat16>& gate, const std::vector<bfloat16>& up) {
  Device device;
  const auto count = static_cast<int64_t>(gate.size());
  bfloat16* const y = device.Make<bfloat16>(count);
  EXPECT_TRUE(device
                  ->Run(SwigluForward{.gate = device.Put(gate),
                                      .up = device.Put(up),
                                      .y = y,
                                      .rows = RowsOf(count),
                                      .columns = count / RowsOf(count)})
                  .ok());
  return testing_support::ToDouble(device.Get(y, count));
}

// Two roundings to BF16 of a half unit each, and the error of the exponential.
double SwigluBound(double exact) {
  return (std::ldexp(1, -7) + std::ldexp(1, -15)) * std::fabs(exact) + std::ldexp(1, -133);
}

TEST_P(ElementwiseOn, SwigluForwardStaysWithinTwoRoundings) {
  for (const int64_t count : kSizes) {
    const auto gate = testing_support::NormalBfloat16(count, 1, 10.0f);
    const auto up = testing_support::NormalBfloat16(count, 2);
    const std::vector<double> got = RunSwiglu(gate, up);
    BoundShare share;
    BoundShare without_sigmoid;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto g = static_cast<double>(ToFloat(gate[i]));
      const auto u = static_cast<double>(ToFloat(up[i]));
      const double want = g * Sigmoid(g) * u;
      share.Add(got[i], want, SwigluBound(want));
      without_sigmoid.Add(got[i], g * u, SwigluBound(want));
    }
    EXPECT_TRUE(share.Holds("y"));
    if (count > 1) {  // of one large gate the sigmoid is 1
      EXPECT_GT(without_sigmoid.largest(), 1);
    }
  }
}

TEST_P(ElementwiseOn, SwigluForwardExtremesSaturateAndNaNSpreads) {
  const auto gate = testing_support::ToBfloat16({200.0f, -200.0f, 0.0f, kNaN, -88.0f, 3e38f});
  const auto up = testing_support::ToBfloat16({2.0f, 2.0f, 5.0f, 1.0f, 1.0f, 1.0f});
  const std::vector<double> y = RunSwiglu(gate, up);
  EXPECT_EQ(y[0], 400.0);
  EXPECT_EQ(y[1], 0.0);
  EXPECT_EQ(y[2], 0.0);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_NEAR(y[4] / (-88 * std::exp(-88.0)), 1, 0.01);
  EXPECT_NEAR(y[5] / 3e38, 1, 0.01);
}

struct SwigluGradients {
  double gate;
  double up;
};
SwigluGradients Differentiate(double dy, double gate, double up) {
  const double s = Sigmoid(gate);
  return {.gate = dy * up * (s + gate * s * (1 - s)), .up = dy * gate * s};
}

TEST(SwigluBackward, TheReferenceAgreesWithDifferences) {
  const auto y = [](double gate, double up) { return gate * Sigmoid(gate) * up; };
  for (const double gate : {-6.0, -1.0, 0.0, 0.5, 8.0}) {
    const SwigluGradients d = Differentiate(1.5, gate, 0.7);
    EXPECT_NEAR(d.gate, 1.5 * (y(gate + 1e-5, 0.7) - y(gate - 1e-5, 0.7)) / 2e-5, 1e-8);
    EXPECT_NEAR(d.up, 1.5 * (y(gate, 1.7) - y(gate, 0.7)), 1e-12);
  }
}

TEST_P(ElementwiseOn, SwigluBackwardStaysWithinItsBoundAndMayWriteOverItsInputs) {
  for (const int64_t count : kSizes) {
    Device device;
    const auto dy = testing_support::NormalBfloat16(count, 1);
    const auto gate = testing_support::NormalBfloat16(count, 2, 4.0f);
    const auto up = testing_support::NormalBfloat16(count, 3);
    bfloat16* const dgate = device.Put(gate);
    bfloat16* const dup = device.Put(up);
    ASSERT_TRUE(device
                    ->Run(SwigluBackward{.dy = device.Put(dy),
                                         .gate = dgate,
                                         .up = dup,
                                         .dgate = dgate,
                                         .dup = dup,
                                         .rows = RowsOf(count),
                                         .columns = count / RowsOf(count)})
                    .ok());
    const auto got_gate = testing_support::ToDouble(device.Get(dgate, count));
    const auto got_up = testing_support::ToDouble(device.Get(dup, count));
    BoundShare gate_share;
    BoundShare up_share;
    BoundShare wrong;
    for (size_t i = 0; i < dy.size(); ++i) {
      const double of_y = static_cast<double>(ToFloat(dy[i]));
      const double of_gate = static_cast<double>(ToFloat(gate[i]));
      const double of_up = static_cast<double>(ToFloat(up[i]));
      const SwigluGradients want = Differentiate(of_y, of_gate, of_up);
      const double s = Sigmoid(of_gate);
      const double terms = std::fabs(of_y * of_up) * (s + std::fabs(of_gate) * s * (1 - s));
      const double gate_bound = std::ldexp(std::fabs(want.gate), -8) + std::ldexp(terms, -20);
      gate_share.Add(got_gate[i], want.gate, gate_bound);
      wrong.Add(got_gate[i], of_y * of_up * s, gate_bound);
      up_share.Add(got_up[i], want.up, SwigluBound(want.up));
    }
    EXPECT_TRUE(gate_share.Holds("dgate"));
    EXPECT_TRUE(up_share.Holds("dup"));
    EXPECT_GT(wrong.largest(), 1);
  }
}

TEST_P(ElementwiseOn, ColumnSumAddsEveryRowInFloat32) {
  for (const int64_t columns : {1, 31, 33, 64, 129}) {
    for (const int64_t rows : {1, 127, 128, 300}) {
      Device device;
      const auto x = testing_support::NormalBfloat16(rows * columns, 1);
      float* const out = device.Put(std::vector<float>(static_cast<size_t>(columns), 2.0f));
      ASSERT_TRUE(
          device->Run(ColumnSum{.x = device.Put(x), .out = out, .rows = rows, .columns = columns})
              .ok());
      const std::vector<float> got = device.Get(out, columns);
      BoundShare share;
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 2;
        double magnitude = 2;
        for (int64_t r = 0; r < rows; ++r) {
          const double value =
              static_cast<double>(ToFloat(x[static_cast<size_t>(r * columns + c)]));
          sum += value;
          magnitude += std::fabs(value);
        }
        share.Add(static_cast<double>(got[static_cast<size_t>(c)]), sum,
                  static_cast<double>(rows) * std::ldexp(magnitude, -24));
      }
      EXPECT_TRUE(share.Holds("sum"));
    }
  }
}

double RunSumOfSquares(const std::vector<float>& x, double initial = 0, int threads = 2) {
  Device device(threads);
  double* const result = device.Put<double>({initial});
  EXPECT_TRUE(
      device
          ->Run(SumOfSquares{
              .x = device.Put(x), .count = static_cast<int64_t>(x.size()), .result = result})
          .ok());
  return device.Get(result, 1)[0];
}

TEST_P(ElementwiseOn, SumOfSquaresAddsInFloat64ToWhatIsThere) {
  for (const int64_t count : {int64_t{1}, int64_t{17}, int64_t{65537}, int64_t{200000}}) {
    const std::vector<float> x = testing_support::Normal(count, 1);
    double want = 5;
    for (const float value : x) want += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(RunSumOfSquares(x, 5), want, want * 1e-11);
  }
  EXPECT_EQ(RunSumOfSquares({3e38f, 3e38f}), 2 * std::pow(static_cast<double>(3e38f), 2));
}

TEST(SumOfSquares, IsNotFiniteForNaNAndInfinity) {
  EXPECT_TRUE(std::isnan(RunSumOfSquares({1.0f, kNaN})));
  EXPECT_TRUE(std::isinf(RunSumOfSquares({1.0f, -kInfinity})));
}

TEST_P(ElementwiseOn, SumOfSquaresThreadsDoNotChangeTheBits) {
  const std::vector<float> x = testing_support::Normal(300000, 1);
  EXPECT_EQ(RunSumOfSquares(x, 0, 1), RunSumOfSquares(x, 0, 3));
}

}  // namespace
}  // namespace octavo::kernels
