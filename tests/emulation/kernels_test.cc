// The CUDA sources on the host against float64 and against the CPU backend, under shuffled
// schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/split_mix.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations.h"
#include "kernels/numerics/e4m3.h"
#include "kernels/simt/simt.h"

namespace octavo::kernels::cuda {
namespace {

using ::testing::HasSubstr;

// Numbers of both signs over several powers of two.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  float Next() {
    const uint64_t z = NextSplitMix(&state_);
    const double unit = static_cast<double>(z >> 11) / 9007199254740992.0 * 2 - 1;
    return static_cast<float>(std::ldexp(unit, static_cast<int>(z % 7) - 3));
  }
  std::vector<bfloat16> Bfloat16(int64_t count) {
    std::vector<bfloat16> values(static_cast<size_t>(count));
    for (bfloat16& value : values) value = ToBfloat16(Next());
    return values;
  }
  std::vector<float> Float(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = Next();
    return values;
  }

 private:
  uint64_t state_;
};

struct Shape {
  int64_t rows;
  int64_t columns;
  uint64_t schedule_seed;
};

std::string PrintShape(const testing::TestParamInfo<Shape>& info) {
  return absl::StrCat(info.param.rows, "x", info.param.columns, "_schedule",
                      info.param.schedule_seed);
}

class Emulated : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    simt::SetScheduleSeed(GetParam().schedule_seed);
    absl::StatusOr<std::unique_ptr<Backend>> opened =
        OpenBackend("cpu", {.memory_bytes = 0, .threads = 1});
    ASSERT_TRUE(opened.ok()) << opened.status();
    cpu_ = *std::move(opened);
  }
  void TearDown() override { simt::SetScheduleSeed(0); }

  template <typename Operation>
  void RunOnCpu(const Operation& operation) {
    ASSERT_TRUE(cpu_->Run(operation).ok());
    ASSERT_TRUE(cpu_->Synchronize().ok());
  }

  const int64_t rows_ = GetParam().rows;
  const int64_t columns_ = GetParam().columns;
  std::unique_ptr<Backend> cpu_;
};

int64_t Tiles(int64_t count) { return (count + 127) / 128; }

struct TileCopies {
  TileCopies(int64_t rows, int64_t columns)
      : row_codes(rows * columns, 0xEE),
        column_codes(rows * columns, 0xEE),
        row_scales(rows * Tiles(columns), -1),
        column_scales(columns * Tiles(rows), -1) {}
  QuantizeTiles Operation(const std::vector<bfloat16>& x, int64_t rows, int64_t columns) {
    return {.x = x.data(),
            .rows = rows,
            .columns = columns,
            .row_codes = row_codes.data(),
            .row_scale_inv = row_scales.data(),
            .column_codes = column_codes.data(),
            .column_scale_inv = column_scales.data(),
            .nonfinite = &nonfinite};
  }
  std::vector<uint8_t> row_codes, column_codes;
  std::vector<float> row_scales, column_scales;
  uint32_t nonfinite = 0;
};

TEST_P(Emulated, QuantizedTilesEqualTheCpuBackendByteForByte) {
  std::vector<bfloat16> x = Numbers(1).Bfloat16(rows_ * columns_);
  x[0] = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
  x[x.size() / 2] = ToBfloat16(std::numeric_limits<float>::infinity());
  x[x.size() - 1] = ToBfloat16(1e-30f);
  TileCopies cuda(rows_, columns_), cpu(rows_, columns_);
  ASSERT_EQ(Enqueue(cuda.Operation(x, rows_, columns_), nullptr), kSuccess) << simt::TakeError();
  RunOnCpu(cpu.Operation(x, rows_, columns_));
  EXPECT_EQ(cuda.row_codes, cpu.row_codes);
  EXPECT_EQ(cuda.column_codes, cpu.column_codes);
  EXPECT_EQ(cuda.row_scales, cpu.row_scales);
  EXPECT_EQ(cuda.column_scales, cpu.column_scales);
  EXPECT_EQ(cuda.nonfinite, 2u);
  EXPECT_EQ(cuda.nonfinite, cpu.nonfinite);
}

struct BlockCopies {
  BlockCopies(int64_t rows, int64_t columns)
      : codes(rows * columns, 0xEE),
        transposed(rows * columns, 0xEE),
        scales(Tiles(rows) * Tiles(columns), -1),
        transposed_scales(Tiles(rows) * Tiles(columns), -1) {}
  QuantizeBlocks Operation(const std::vector<float>& x, int64_t rows, int64_t columns) {
    return {.x = x.data(),
            .rows = rows,
            .columns = columns,
            .codes = codes.data(),
            .scale_inv = scales.data(),
            .transposed_codes = transposed.data(),
            .transposed_scale_inv = transposed_scales.data(),
            .nonfinite = &nonfinite};
  }
  std::vector<uint8_t> codes, transposed;
  std::vector<float> scales, transposed_scales;
  uint32_t nonfinite = 0;
};

TEST_P(Emulated, QuantizedBlocksEqualTheCpuBackendByteForByte) {
  const std::vector<float> x = Numbers(2).Float(rows_ * columns_);
  BlockCopies cuda(rows_, columns_), cpu(rows_, columns_);
  ASSERT_EQ(Enqueue(cuda.Operation(x, rows_, columns_), nullptr), kSuccess) << simt::TakeError();
  RunOnCpu(cpu.Operation(x, rows_, columns_));
  EXPECT_EQ(cuda.codes, cpu.codes);
  EXPECT_EQ(cuda.transposed, cpu.transposed);
  EXPECT_EQ(cuda.scales, cpu.scales);
  EXPECT_EQ(cuda.transposed_scales, cpu.transposed_scales);
}

// Two BF16 roundings and a float32 sum (bound of kernels/ops/norm.h).
TEST_P(Emulated, RmsNormStaysWithinItsBoundOfFloat64) {
  Numbers numbers(3);
  const std::vector<bfloat16> x = numbers.Bfloat16(rows_ * columns_);
  const std::vector<bfloat16> weight = numbers.Bfloat16(columns_);
  std::vector<bfloat16> y(x.size());
  std::vector<float> inverse_rms(rows_);
  const RmsNormForward op = {.x = x.data(),
                             .weight = weight.data(),
                             .y = y.data(),
                             .inverse_rms = inverse_rms.data(),
                             .rows = rows_,
                             .columns = columns_,
                             .epsilon = 1e-5f};
  ASSERT_EQ(Enqueue(op, nullptr), kSuccess) << simt::TakeError();
  const double bound = 2 * std::ldexp(1.0, -8) + std::ldexp(1.0, -16) +
                       static_cast<double>(columns_) * std::ldexp(1.0, -24);
  double share = 0;
  for (int64_t r = 0; r < rows_; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < columns_; ++c) squares += std::pow(ToFloat(x[r * columns_ + c]), 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns_) + 1e-5f);
    for (int64_t c = 0; c < columns_; ++c) {
      const double exact = ToFloat(x[r * columns_ + c]) * scale * ToFloat(weight[c]);
      share = std::max(share, std::abs(ToFloat(y[r * columns_ + c]) - exact) /
                                  (bound * std::abs(exact) + 1e-38));
    }
  }
  EXPECT_LE(share, 1) << "share of the bound that was used";
  EXPECT_GT(share, 0.05) << "a bound this slack would prove nothing";
}

// Gradients in float64 from the same BF16 inputs; one rounding of dx, float32 sums.
TEST_P(Emulated, RmsNormBackwardStaysWithinItsBoundOfFloat64) {
  Numbers numbers(4);
  const std::vector<bfloat16> x = numbers.Bfloat16(rows_ * columns_);
  const std::vector<bfloat16> dy = numbers.Bfloat16(rows_ * columns_);
  const std::vector<bfloat16> add = numbers.Bfloat16(rows_ * columns_);
  const std::vector<bfloat16> weight = numbers.Bfloat16(columns_);
  std::vector<float> inverse_rms(rows_);
  std::vector<double> dweight_exact(columns_, 0), dweight_size(columns_, 0);
  std::vector<double> dx_exact(x.size()), dx_size(x.size());
  for (int64_t r = 0; r < rows_; ++r) {
    double squares = 0, products = 0, sizes = 0;
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t i = r * columns_ + c;
      squares += std::pow(ToFloat(x[i]), 2);
      products += double{ToFloat(dy[i])} * ToFloat(weight[c]) * ToFloat(x[i]);
      sizes += std::abs(double{ToFloat(dy[i])} * ToFloat(weight[c]) * ToFloat(x[i]));
    }
    const double n = static_cast<double>(columns_);
    const double scale = 1 / std::sqrt(squares / n + 1e-6);
    inverse_rms[r] = static_cast<float>(scale);
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t i = r * columns_ + c;
      const double g = double{ToFloat(dy[i])} * ToFloat(weight[c]);
      const double pull = ToFloat(x[i]) * scale * scale * products / n;
      dx_exact[i] = scale * (g - pull) + ToFloat(add[i]);
      dx_size[i] = scale * (std::abs(g) + std::abs(ToFloat(x[i])) * scale * scale * sizes / n) +
                   std::abs(ToFloat(add[i]));
      dweight_exact[c] += double{ToFloat(dy[i])} * ToFloat(x[i]) * scale;
      dweight_size[c] += std::abs(double{ToFloat(dy[i])} * ToFloat(x[i]) * scale);
    }
  }
  std::vector<bfloat16> dx = add;
  std::vector<float> dweight(columns_, 0.5f);
  const RmsNormBackward op = {.dy = dy.data(),
                              .x = x.data(),
                              .weight = weight.data(),
                              .inverse_rms = inverse_rms.data(),
                              .dx_add = dx.data(),
                              .dx = dx.data(),
                              .dweight = dweight.data(),
                              .rows = rows_,
                              .columns = columns_};
  ASSERT_EQ(Enqueue(op, nullptr), kSuccess) << simt::TakeError();
  const double epsilon = std::ldexp(1.0, -24);
  for (size_t i = 0; i < dx.size(); ++i) {
    const double bound = std::ldexp(1.0, -8) * std::abs(dx_exact[i]) +
                         static_cast<double>(columns_ + 8) * epsilon * dx_size[i];
    ASSERT_LE(std::abs(ToFloat(dx[i]) - dx_exact[i]), bound) << "dx[" << i << "]";
  }
  for (int64_t c = 0; c < columns_; ++c) {
    const double bound = static_cast<double>(rows_ + 4) * epsilon * (dweight_size[c] + 0.5);
    ASSERT_LE(std::abs(dweight[c] - 0.5 - dweight_exact[c]), bound) << "dweight[" << c << "]";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Emulated,
                         testing::Values(Shape{2, 3, 0}, Shape{3, 31, 1}, Shape{33, 128, 2},
                                         Shape{128, 33, 3}, Shape{129, 127, 4}, Shape{127, 257, 5},
                                         Shape{256, 192, 0}),
                         PrintShape);

struct GemmShape {
  int64_t m;
  int64_t n;
  int64_t k;
  Granularity b_granularity;
  uint64_t schedule_seed;
};

class EmulatedGemm : public testing::TestWithParam<GemmShape> {
 protected:
  void TearDown() override { simt::SetScheduleSeed(0); }
};

// Codes of every finite kind, scales of neighbouring tiles a factor of 2^10 apart, so that a
// swapped scale cannot pass.
struct Operand {
  Operand(Numbers* numbers, int64_t rows, int64_t columns, Granularity granularity) {
    for (int64_t i = 0; i < rows * columns; ++i) codes.push_back(FloatToE4m3(numbers->Next() * 16));
    const int64_t lines = granularity == Granularity::kTile1x128 ? rows : Tiles(rows);
    for (int64_t i = 0; i < lines * Tiles(columns); ++i)
      scales.push_back(std::ldexp(1.0f, i % 2 == 0 ? -6 : 4));
    matrix = {codes.data(), scales.data(), rows, columns, granularity};
  }
  double At(int64_t row, int64_t k) const {
    const int64_t line = matrix.granularity == Granularity::kTile1x128 ? row : row / 128;
    return double{E4m3ToFloat(codes[row * matrix.columns + k])} *
           scales[line * Tiles(matrix.columns) + k / 128];
  }
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  Fp8Matrix matrix;
};

TEST_P(EmulatedGemm, StaysWithinTheFloat32BoundOfFloat64) {
  const auto [m, n, k, granularity, seed] = GetParam();
  simt::SetScheduleSeed(seed);
  Numbers numbers(7);
  const Operand a(&numbers, m, k, Granularity::kTile1x128);
  const Operand b(&numbers, n, k, granularity);
  const std::vector<bfloat16> bias = numbers.Bfloat16(n);
  std::vector<float> sums(m * n, 2.0f);
  std::vector<bfloat16> rounded(m * n);
  ASSERT_EQ(Enqueue(GemmFp8{a.matrix, b.matrix, nullptr, sums.data(), ResultType::kFloat32, true},
                    nullptr),
            kSuccess)
      << simt::TakeError();
  ASSERT_EQ(Enqueue(GemmFp8{a.matrix, b.matrix, bias.data(), rounded.data(), ResultType::kBfloat16,
                            false},
                    nullptr),
            kSuccess);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0, size = 0;
      for (int64_t l = 0; l < k; ++l) {
        exact += a.At(i, l) * b.At(j, l);
        size += std::abs(a.At(i, l) * b.At(j, l));
      }
      const double bound =
          4 * std::sqrt(static_cast<double>(k)) * std::ldexp(1.0, -24) * (size + 2) +
          std::ldexp(1.0, -126);
      ASSERT_LE(std::abs(sums[i * n + j] - 2 - exact), bound) << i << "," << j;
      const double biased = exact + ToFloat(bias[j]);
      ASSERT_LE(std::abs(ToFloat(rounded[i * n + j]) - biased),
                bound + std::ldexp(std::abs(biased), -8))
          << i << "," << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedGemm,
                         testing::Values(GemmShape{1, 1, 1, Granularity::kBlock128x128, 0},
                                         GemmShape{33, 31, 129, Granularity::kBlock128x128, 1},
                                         GemmShape{64, 64, 128, Granularity::kTile1x128, 2},
                                         GemmShape{65, 130, 300, Granularity::kBlock128x128, 3},
                                         GemmShape{40, 192, 257, Granularity::kTile1x128, 4}));

TEST(EmulatedGemmRefuses, ShapesThatDoNotMatchAndTwoBlockOperands) {
  Numbers numbers(9);
  const Operand a(&numbers, 4, 8, Granularity::kTile1x128),
      longer(&numbers, 4, 9, Granularity::kTile1x128);
  const Operand block(&numbers, 4, 8, Granularity::kBlock128x128);
  float c[16];
  EXPECT_EQ(
      Enqueue(GemmFp8{a.matrix, longer.matrix, nullptr, c, ResultType::kFloat32, false}, nullptr),
      kInvalidValue);
  EXPECT_EQ(Enqueue(GemmFp8{block.matrix, block.matrix, nullptr, c, ResultType::kFloat32, false},
                    nullptr),
            kInvalidValue);
  EXPECT_EQ(Enqueue(GemmFp8{a.matrix, a.matrix, nullptr, c, ResultType::kBfloat16, true}, nullptr),
            kInvalidValue);
}

}  // namespace
}  // namespace octavo::kernels::cuda
