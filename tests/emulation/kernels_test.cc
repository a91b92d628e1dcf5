// The CUDA sources on the host against float64 and against the CPU backend, under shuffled
// schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/split_mix.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantized_layout.h"
#include "kernels/numerics/element.h"
#include "kernels/quantized_bytes.h"
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

// Memory for tensors of the emulated CUDA backend and of the CPU backend, and plain copies of them.
// Filled with 0xEE, so that a byte of padding that nobody writes is seen.
struct Tensor {
  std::vector<uint8_t> memory;  // 256 bytes more: its start is aligned by hand
  QuantizedTensor tensor;

  Tensor(const QuantizedSpec& spec, int64_t bytes) : memory(bytes + 256, 0xEE) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    tensor = {.spec = spec, .data = memory.data() + (256 - address % 256) % 256};
  }
};
Tensor CudaTensor(const QuantizedSpec& spec) { return Tensor(spec, QuantizedBytes(spec)); }
Tensor CpuTensor(const QuantizedSpec& spec) {
  return Tensor(spec, kernels::QuantizedBytes("cpu", spec));
}

struct Plain {
  std::vector<uint8_t> codes;
  std::vector<float> scale_inv;
  bool operator==(const Plain&) const = default;

  explicit Plain(const QuantizedSpec& spec)
      : codes(spec.rows * spec.columns), scale_inv(spec.scales()) {}
  ReadQuantized Reading(const Tensor& tensor) {
    return {.tensor = tensor.tensor, .codes = codes.data(), .scale_inv = scale_inv.data()};
  }
};

Plain PlainOf(const Tensor& tensor) {
  Plain plain(tensor.tensor.spec);
  EXPECT_EQ(Enqueue(plain.Reading(tensor), nullptr), kSuccess) << simt::TakeError();
  return plain;
}

Plain PlainOf(const Tensor& tensor, Backend* cpu) {
  Plain plain(tensor.tensor.spec);
  EXPECT_TRUE(cpu->Run(plain.Reading(tensor)).ok());
  return plain;
}

QuantizedSpec Spec(int64_t rows, int64_t columns, Tile tile, Role role,
                   Element element = Element::kE4M3) {
  return {.rows = rows, .columns = columns, .element = element, .tile = tile, .role = role};
}

// A product over padded extents must read nothing but zeros beyond the matrix.
void ExpectCleanPadding(const Tensor& tensor) {
  const QuantizedLayout layout = LayoutOf(tensor.tensor);
  for (int64_t row = 0; row < layout.padded_rows; ++row) {
    for (int64_t column = 0; column < layout.padded_columns; ++column) {
      if (row < layout.rows && column < layout.columns) continue;
      ASSERT_EQ(layout.codes[layout.CodeAt(row, column)], 0) << row << "," << column;
    }
  }
  const int64_t across = TileCount(layout.columns);
  if (layout.tile == Tile::k1x128) {
    for (int64_t row = layout.rows; row < layout.padded_rows; ++row)
      for (int64_t tile = 0; tile < across; ++tile)
        ASSERT_EQ(layout.scale_inv[layout.ScaleAt(row, tile)], 1.0f);
  } else {
    for (int64_t row = 0; row < layout.rows; row += 128)
      for (int64_t tile = across; tile < layout.block_stride; ++tile)
        ASSERT_EQ(layout.scale_inv[layout.ScaleAt(row, tile)], 1.0f);
  }
}

TEST_P(Emulated, QuantizedTilesEqualTheCpuBackendByteForByte) {
  std::vector<bfloat16> x = Numbers(1).Bfloat16(rows_ * columns_);
  x[0] = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
  x[x.size() / 2] = ToBfloat16(std::numeric_limits<float>::infinity());
  x[x.size() - 1] = ToBfloat16(1e-30f);
  for (const Element element : {Element::kE4M3, Element::kE5M2}) {
    const QuantizedSpec rows = Spec(rows_, columns_, Tile::k1x128, Role::kA, element);
    const QuantizedSpec columns = Spec(columns_, rows_, Tile::k1x128, Role::kB, element);
    const Tensor cuda_rows = CudaTensor(rows), cuda_columns = CudaTensor(columns);
    const Tensor cpu_rows = CpuTensor(rows), cpu_columns = CpuTensor(columns);
    uint64_t cuda_nonfinite = 0, cpu_nonfinite = 0;
    QuantizeTiles op = {.x = x.data(),
                        .rows = rows_,
                        .columns = columns_,
                        .tiles = {.by_rows = cuda_rows.tensor,
                                  .by_columns = cuda_columns.tensor,
                                  .nonfinite = &cuda_nonfinite}};
    ASSERT_EQ(Enqueue(op, nullptr), kSuccess) << simt::TakeError();
    op.tiles = {
        .by_rows = cpu_rows.tensor, .by_columns = cpu_columns.tensor, .nonfinite = &cpu_nonfinite};
    RunOnCpu(op);
    EXPECT_EQ(PlainOf(cuda_rows), PlainOf(cpu_rows, cpu_.get()));
    EXPECT_EQ(PlainOf(cuda_columns), PlainOf(cpu_columns, cpu_.get()));
    EXPECT_EQ(cuda_nonfinite, 2u);
    EXPECT_EQ(cuda_nonfinite, cpu_nonfinite);
    ExpectCleanPadding(cuda_rows);
    ExpectCleanPadding(cuda_columns);
  }
}

TEST_P(Emulated, QuantizedBlocksEqualTheCpuBackendByteForByte) {
  const std::vector<float> x = Numbers(2).Float(rows_ * columns_);
  const QuantizedSpec normal = Spec(rows_, columns_, Tile::k128x128, Role::kB);
  const QuantizedSpec transposed = Spec(columns_, rows_, Tile::k128x128, Role::kB);
  const Tensor cuda_normal = CudaTensor(normal), cuda_transposed = CudaTensor(transposed);
  const Tensor cpu_normal = CpuTensor(normal), cpu_transposed = CpuTensor(transposed);
  QuantizeBlocks op = {.x = x.data(),
                       .rows = rows_,
                       .columns = columns_,
                       .normal = cuda_normal.tensor,
                       .transposed = cuda_transposed.tensor,
                       .nonfinite = nullptr};
  ASSERT_EQ(Enqueue(op, nullptr), kSuccess) << simt::TakeError();
  op.normal = cpu_normal.tensor;
  op.transposed = cpu_transposed.tensor;
  RunOnCpu(op);
  EXPECT_EQ(PlainOf(cuda_normal), PlainOf(cpu_normal, cpu_.get()));
  EXPECT_EQ(PlainOf(cuda_transposed), PlainOf(cpu_transposed, cpu_.get()));
  ExpectCleanPadding(cuda_normal);
  ExpectCleanPadding(cuda_transposed);
}

TEST_P(Emulated, PlainCodesAndScalesComeBackAsTheyWentIn) {
  for (const Tile tile : {Tile::k1x128, Tile::k128x128}) {
    const QuantizedSpec spec = Spec(rows_, columns_, tile, Role::kA);
    Plain plain(spec);
    for (size_t i = 0; i < plain.codes.size(); ++i) plain.codes[i] = static_cast<uint8_t>(i * 7);
    for (size_t i = 0; i < plain.scale_inv.size(); ++i)
      plain.scale_inv[i] = std::ldexp(1.0f, static_cast<int>(i % 253) - 126);
    const Tensor tensor = CudaTensor(spec);
    ASSERT_EQ(Enqueue(WriteQuantized{.codes = plain.codes.data(),
                                     .scale_inv = plain.scale_inv.data(),
                                     .tensor = tensor.tensor},
                      nullptr),
              kSuccess)
        << simt::TakeError();
    EXPECT_EQ(PlainOf(tensor), plain);
    ExpectCleanPadding(tensor);
  }
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

// Rows of four kinds in turn: sound, a sum of squares beyond float32, a NaN, and zeros without an
// epsilon, whose r is infinite.
TEST_P(Emulated, RmsNormCountsTheRowsThatItCannotNormaliseAsTheCpuDoes) {
  Numbers numbers(5);
  std::vector<bfloat16> x = numbers.Bfloat16(rows_ * columns_);
  uint64_t unusable = 0;
  for (int64_t r = 0; r < rows_; ++r) {
    bfloat16* const row = &x[r * columns_];
    row[0] = ToBfloat16(1);
    if (r % 4 == 1) row[columns_ - 1] = ToBfloat16(1e20f);
    if (r % 4 == 2) row[columns_ / 2] = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
    if (r % 4 == 3) std::fill(row, row + columns_, ToBfloat16(0));
    if (r % 4 != 0) ++unusable;
  }
  const std::vector<bfloat16> weight = numbers.Bfloat16(columns_);
  std::vector<bfloat16> y(x.size());
  std::vector<float> inverse_rms(rows_);
  uint64_t on_cuda = 5, on_cpu = 5;
  RmsNormForward op = {.x = x.data(),
                       .weight = weight.data(),
                       .y = y.data(),
                       .inverse_rms = inverse_rms.data(),
                       .rows = rows_,
                       .columns = columns_,
                       .epsilon = 0,
                       .nonfinite = &on_cuda};
  ASSERT_EQ(Enqueue(op, nullptr), kSuccess) << simt::TakeError();
  op.nonfinite = &on_cpu;
  RunOnCpu(op);
  EXPECT_EQ(on_cuda, 5 + unusable);
  EXPECT_EQ(on_cpu, 5 + unusable);
  op.nonfinite = nullptr;
  EXPECT_EQ(Enqueue(op, nullptr), kSuccess) << simt::TakeError();
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
  Tile b_tile;
  uint64_t schedule_seed;
  Element a_element = Element::kE4M3;
  Element b_element = Element::kE4M3;
};

class EmulatedGemm : public testing::TestWithParam<GemmShape> {
 protected:
  void TearDown() override { simt::SetScheduleSeed(0); }
};

// Codes of every finite kind, scales of neighbouring tiles a factor of 2^10 apart, so that a
// swapped scale cannot pass.
struct Operand {
  Operand(Numbers* numbers, const QuantizedSpec& spec) : plain(spec), tensor(CudaTensor(spec)) {
    for (uint8_t& code : plain.codes) code = FloatToCode(spec.element, numbers->Next() * 16);
    for (size_t i = 0; i < plain.scale_inv.size(); ++i)
      plain.scale_inv[i] = std::ldexp(1.0f, i % 2 == 0 ? -6 : 4);
    EXPECT_EQ(Enqueue(WriteQuantized{.codes = plain.codes.data(),
                                     .scale_inv = plain.scale_inv.data(),
                                     .tensor = tensor.tensor},
                      nullptr),
              kSuccess)
        << simt::TakeError();
  }
  double At(int64_t row, int64_t k) const {
    const QuantizedSpec& spec = tensor.tensor.spec;
    const int64_t line = spec.tile == Tile::k1x128 ? row : row / 128;
    return double{CodeToFloat(spec.element, plain.codes[row * spec.columns + k])} *
           plain.scale_inv[line * spec.scale_columns() + k / 128];
  }
  Plain plain;
  Tensor tensor;
};

TEST_P(EmulatedGemm, StaysWithinTheFloat32BoundOfFloat64) {
  const auto [m, n, k, b_tile, seed, a_element, b_element] = GetParam();
  simt::SetScheduleSeed(seed);
  Numbers numbers(7);
  const Operand a(&numbers, Spec(m, k, Tile::k1x128, Role::kA, a_element));
  const Operand b(&numbers, Spec(n, k, b_tile, Role::kB, b_element));
  const std::vector<bfloat16> bias = numbers.Bfloat16(n);
  std::vector<float> sums(m * n, 2.0f);
  const int64_t pitch = n + 3;
  std::vector<bfloat16> rounded(m * pitch);
  ASSERT_EQ(Enqueue(GemmFp8{a.tensor.tensor, b.tensor.tensor, nullptr, sums.data(),
                            ResultType::kFloat32, true},
                    nullptr),
            kSuccess)
      << simt::TakeError();
  ASSERT_EQ(Enqueue(GemmFp8{a.tensor.tensor, b.tensor.tensor, bias.data(), rounded.data(),
                            ResultType::kBfloat16, false, pitch},
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
      ASSERT_LE(std::abs(ToFloat(rounded[i * pitch + j]) - biased),
                bound + std::ldexp(std::abs(biased), -8))
          << i << "," << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedGemm,
                         testing::Values(GemmShape{1, 1, 1, Tile::k128x128, 0},
                                         GemmShape{33, 31, 129, Tile::k128x128, 1},
                                         GemmShape{64, 64, 128, Tile::k1x128, 2},
                                         GemmShape{65, 130, 300, Tile::k128x128, 3},
                                         GemmShape{40, 192, 257, Tile::k1x128, 4},
                                         GemmShape{33, 31, 129, Tile::k128x128, 5, Element::kE5M2},
                                         GemmShape{20, 40, 300, Tile::k1x128, 6, Element::kE4M3,
                                                   Element::kE5M2}));

TEST(EmulatedGemmRefuses, WhatTheKernelCannotDo) {
  Numbers numbers(9);
  const Operand a(&numbers, Spec(4, 8, Tile::k1x128, Role::kA));
  const Operand b(&numbers, Spec(4, 8, Tile::k1x128, Role::kB));
  const Operand longer(&numbers, Spec(4, 9, Tile::k1x128, Role::kB));
  const Operand blocks(&numbers, Spec(4, 8, Tile::k128x128, Role::kB));
  const Operand e5m2(&numbers, Spec(4, 8, Tile::k1x128, Role::kB, Element::kE5M2));
  float c[16];
  const auto refused = [&](const Operand& left, const Operand& right, ResultType type,
                           bool accumulate) {
    return Enqueue(GemmFp8{left.tensor.tensor, right.tensor.tensor, nullptr, c, type, accumulate},
                   nullptr) == kInvalidValue;
  };
  EXPECT_FALSE(refused(a, b, ResultType::kFloat32, false));
  EXPECT_TRUE(refused(a, longer, ResultType::kFloat32, false));
  EXPECT_TRUE(refused(blocks, blocks, ResultType::kFloat32, false));
  EXPECT_TRUE(refused(e5m2, e5m2, ResultType::kFloat32, false));
  EXPECT_TRUE(refused(a, b, ResultType::kBfloat16, true));
}

}  // namespace
}  // namespace octavo::kernels::cuda
