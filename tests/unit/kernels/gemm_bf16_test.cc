// BF16 matrix products against float64, within the bound of kernels/ops/matmul.h.
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul.h"
#include "tests/support/device.h"
#include "tests/support/numbers.h"
#include "tests/support/pitched.h"
#include "tests/support/product.h"

namespace octavo::kernels {
namespace {

using testing_support::Operand;
using testing_support::Share;

// The transposed copy of a [rows, columns] matrix.
std::vector<bfloat16> Transposed(const std::vector<bfloat16>& x, int64_t rows, int64_t columns) {
  std::vector<bfloat16> result;
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) result.push_back(x[static_cast<size_t>(r * columns + c)]);
  return result;
}

// An operand as it is stored, NaN between its rows.
struct Stored {
  std::vector<bfloat16> values;
  int64_t pitch;
};

// [rows, k] or its transpose, with `gap` elements between the rows.
Stored Store(const std::vector<bfloat16>& x, int64_t rows, int64_t k, Layout layout, int64_t gap) {
  const bool normal = layout == Layout::kNormal;
  const int64_t columns = normal ? k : rows;
  const bfloat16 nan = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
  return {.values = testing_support::Spread(normal ? x : Transposed(x, rows, k), columns,
                                            columns + gap, nan),
          .pitch = gap == 0 ? 0 : columns + gap};
}

// The rows of a result whose gaps still hold `between`.
template <typename T>
std::vector<double> Gather(const std::vector<T>& c, int64_t n, int64_t gap, double between) {
  const std::vector<double> wide = testing_support::ToDouble(c);
  std::vector<double> rows;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (static_cast<int64_t>(i) % (n + gap) < n) {
      rows.push_back(wide[i]);
    } else {
      EXPECT_EQ(wide[i], between) << "written between rows";
    }
  }
  return rows;
}

struct Bf16Case {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t gap;  // elements between rows; a, b and c have different ones
};

// Runs every layout and result type through `run`.
void ExpectEveryLayout(const std::function<absl::Status(const GemmBf16&)>& run,
                       const Bf16Case& test) {
  const auto [m, n, k, gap] = test;
  const int64_t b_gap = 2 * gap, c_gap = 3 * gap;
  const std::vector<bfloat16> a = testing_support::NormalBfloat16(m * k, 1);
  const std::vector<bfloat16> b = testing_support::NormalBfloat16(n * k, 2);
  const std::vector<bfloat16> bias = testing_support::NormalBfloat16(n, 3);
  const Operand a_wide = {.x = testing_support::ToDouble(a), .rows = m, .k = k};
  const Operand b_wide = {.x = testing_support::ToDouble(b), .rows = n, .k = k};
  for (const Layout a_layout : {Layout::kNormal, Layout::kTransposed}) {
    for (const Layout b_layout : {Layout::kNormal, Layout::kTransposed}) {
      const Stored a_stored = Store(a, m, k, a_layout, gap);
      const Stored b_stored = Store(b, n, k, b_layout, b_gap);
      std::vector<float> wide(static_cast<size_t>(m * (n + c_gap)), 7.0f);
      std::vector<bfloat16> narrow(wide.size(), ToBfloat16(7.0f));
      GemmBf16 op = {.a = a_stored.values.data(),
                     .b = b_stored.values.data(),
                     .a_layout = a_layout,
                     .b_layout = b_layout,
                     .m = m,
                     .n = n,
                     .k = k,
                     .bias = nullptr,
                     .c = wide.data(),
                     .c_type = ResultType::kFloat32,
                     .accumulate = true,
                     .a_pitch = a_stored.pitch,
                     .b_pitch = b_stored.pitch,
                     .c_pitch = gap == 0 ? 0 : n + c_gap};
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(
          Share(a_wide, b_wide, Gather(wide, n, c_gap, 7), op.c_type,
                {.bias = {}, .initial = std::vector<double>(static_cast<size_t>(m * n), 7.0)})
              .Holds("accumulate"));
      op.c = narrow.data();
      op.c_type = ResultType::kBfloat16;
      op.accumulate = false;
      op.bias = bias.data();
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(Share(a_wide, b_wide, Gather(narrow, n, c_gap, 7), op.c_type,
                        {.bias = testing_support::ToDouble(bias), .initial = {}})
                      .Holds("bias"));
      // The residual lies apart at a pitch of its own, then in c.
      const std::vector<bfloat16> residual = testing_support::NormalBfloat16(m * n, 4, 9.0f);
      const Stored residual_stored = Store(residual, m, n, Layout::kNormal, gap);
      const testing_support::Addends addends = {.bias = testing_support::ToDouble(bias),
                                                .initial = testing_support::ToDouble(residual)};
      op.residual = residual_stored.values.data();
      op.residual_pitch = residual_stored.pitch;
      ASSERT_TRUE(run(op).ok());
      EXPECT_TRUE(
          Share(a_wide, b_wide, Gather(narrow, n, c_gap, 7), op.c_type, addends).Holds("residual"));
      const std::vector<bfloat16> apart = narrow;
      narrow = testing_support::Spread(residual, n, n + c_gap, ToBfloat16(7.0f));
      op.c = narrow.data();
      op.residual = narrow.data();
      op.residual_pitch = op.c_pitch;
      ASSERT_TRUE(run(op).ok());
      EXPECT_EQ(testing_support::Bits(narrow), testing_support::Bits(apart));
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
    for (const int64_t gap : {0, 5}) {
      ExpectEveryLayout([&](const GemmBf16& op) { return (*matmul)->Run(op); },
                        {.m = m, .n = n, .k = k, .gap = gap});
    }
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
  EXPECT_THAT((*matmul)->Describe(), ::testing::HasSubstr("f32, widened from bf16"));
}

INSTANTIATE_TEST_SUITE_P(Ragged, Bf16Shapes,
                         ::testing::Values(std::tuple{1, 1, 1}, std::tuple{31, 33, 129},
                                           std::tuple{128, 127, 32}, std::tuple{129, 128, 127},
                                           std::tuple{1, 320, 64}));

}  // namespace
}  // namespace octavo::kernels
