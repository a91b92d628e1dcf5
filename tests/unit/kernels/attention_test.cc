// Attention against float64, token by token.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/bound.h"
#include "tests/support/device.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"
#include "tests/support/pitched.h"

namespace octavo::kernels {
namespace {

using testing_support::BoundShare;
using testing_support::Device;

struct Case {
  int64_t tokens;  // queries
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  std::vector<int32_t> attend_from;
  int64_t earlier = 0;  // tokens with keys alone, before the first query
  int64_t gap = 0;      // elements between the rows of every matrix, different for each
  std::vector<bfloat16> q = testing_support::NormalBfloat16(tokens * heads * head_dim, 1, 1.5f);
  std::vector<bfloat16> k =
      testing_support::NormalBfloat16(kv_tokens() * kv_heads * head_dim, 2, 1.5f);
  std::vector<bfloat16> v = testing_support::NormalBfloat16(kv_tokens() * kv_heads * head_dim, 3);
  std::vector<bfloat16> dout = testing_support::NormalBfloat16(tokens * heads * head_dim, 4);

  int64_t kv_tokens() const { return tokens + earlier; }
  int64_t query_columns() const { return heads * head_dim; }
  int64_t key_columns() const { return kv_heads * head_dim; }
  // Of the `index`-th matrix of so many columns.
  int64_t pitch(int64_t columns, int index) const { return gap == 0 ? 0 : columns + gap + index; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }
  size_t query(int64_t token, int64_t head) const {
    return static_cast<size_t>((token * heads + head) * head_dim);
  }
  size_t key(int64_t token, int64_t head) const {
    return static_cast<size_t>((token * kv_heads + head / (heads / kv_heads)) * head_dim);
  }
};

// Documents of the given lengths in one row.
std::vector<int32_t> Documents(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> attend_from;
  for (const int32_t length : lengths)
    attend_from.insert(attend_from.end(), static_cast<size_t>(length),
                       static_cast<int32_t>(attend_from.size()));
  return attend_from;
}

// The same behind `earlier` tokens, which belong to the first of them.
std::vector<int32_t> LaterDocuments(const std::vector<int32_t>& lengths, int32_t earlier) {
  std::vector<int32_t> attend_from = Documents(lengths);
  for (int32_t& from : attend_from) from = from == 0 ? 0 : from + earlier;
  return attend_from;
}

struct Inputs {
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> v;
};

Inputs Widen(const Case& c) {
  return {testing_support::ToDouble(c.q), testing_support::ToDouble(c.k),
          testing_support::ToDouble(c.v)};
}

// Probabilities of one query over the keys attend_from up to itself; log_sum_exp if wanted.
std::vector<double> Probabilities(const Case& c, const Inputs& in, int64_t token, int64_t head,
                                  double* log_sum_exp = nullptr) {
  const int64_t from = c.attend_from[static_cast<size_t>(token)];
  std::vector<double> p;
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t j = from; j <= c.earlier + token; ++j) {
    double score = 0;
    for (int64_t d = 0; d < c.head_dim; ++d)
      score += in.q[c.query(token, head) + static_cast<size_t>(d)] *
               in.k[c.key(j, head) + static_cast<size_t>(d)];
    p.push_back(score * static_cast<double>(c.scale()));
    largest = std::fmax(largest, p.back());
  }
  double sum = 0;
  for (double& score : p) sum += score = std::exp(score - largest);
  for (double& score : p) score /= sum;
  if (log_sum_exp != nullptr) *log_sum_exp = largest + std::log(sum);
  return p;
}

struct Forward {
  std::vector<double> out;
  std::vector<double> magnitude;    // sum p |v|
  std::vector<double> log_sum_exp;  // [heads, tokens]
};

Forward Exact(const Case& c, const Inputs& in) {
  Forward result = {.out = std::vector<double>(c.q.size()),
                    .magnitude = std::vector<double>(c.q.size()),
                    .log_sum_exp = {}};
  for (int64_t head = 0; head < c.heads; ++head) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      double log_sum_exp = 0;
      const std::vector<double> p = Probabilities(c, in, t, head, &log_sum_exp);
      result.log_sum_exp.push_back(log_sum_exp);
      for (size_t i = 0; i < p.size(); ++i) {
        const int64_t j = c.attend_from[static_cast<size_t>(t)] + static_cast<int64_t>(i);
        for (size_t d = 0; d < static_cast<size_t>(c.head_dim); ++d) {
          const double term = p[i] * in.v[c.key(j, head) + d];
          result.out[c.query(t, head) + d] += term;
          result.magnitude[c.query(t, head) + d] += std::fabs(term);
        }
      }
    }
  }
  return result;
}

struct Outputs {
  std::vector<bfloat16> out;
  std::vector<float> log_sum_exp;
};

// Puts, makes and gets matrices whose rows lie the case's pitch apart; `index` tells them apart.
class Matrices {
 public:
  Matrices(const Case& c, int threads) : c_(c), device_(threads) {}
  Device& device() { return device_; }

  const bfloat16* Put(const std::vector<bfloat16>& x, int64_t columns, int index) {
    return testing_support::PutRows(&device_, x, columns, Apart(columns, index));
  }
  bfloat16* Make(int64_t rows, int64_t columns, int index) {
    return device_.Make<bfloat16>(rows * Apart(columns, index));
  }
  std::vector<bfloat16> Get(const bfloat16* x, int64_t rows, int64_t columns, int index) {
    return testing_support::GetRows(&device_, x, rows, columns, Apart(columns, index));
  }

 private:
  int64_t Apart(int64_t columns, int index) const {
    return PitchOr(c_.pitch(columns, index), columns);
  }
  const Case& c_;
  Device device_;
};

Outputs RunForward(const Case& c, int threads = 2) {
  Matrices matrices(c, threads);
  Device& device = matrices.device();
  const int64_t Q = c.query_columns(), K = c.key_columns();
  const AttentionForward op = {.q = matrices.Put(c.q, Q, 1),
                               .k = matrices.Put(c.k, K, 2),
                               .v = matrices.Put(c.v, K, 3),
                               .attend_from = device.Put(c.attend_from),
                               .out = matrices.Make(c.tokens, Q, 4),
                               .log_sum_exp = device.Make<float>(c.heads * c.tokens),
                               .q_tokens = c.tokens,
                               .kv_tokens = c.kv_tokens(),
                               .heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .scale = c.scale(),
                               .q_pitch = c.pitch(Q, 1),
                               .k_pitch = c.pitch(K, 2),
                               .v_pitch = c.pitch(K, 3),
                               .out_pitch = c.pitch(Q, 4)};
  const absl::Status status = device->Run(op);
  EXPECT_TRUE(status.ok()) << status;
  return {matrices.Get(op.out, c.tokens, Q, 4), device.Get(op.log_sum_exp, c.heads * c.tokens)};
}

struct Gradients {
  std::vector<double> dq;
  std::vector<double> dk;
  std::vector<double> dv;
};

// The formulas; with `absolute` the sums of the absolute terms.
Gradients Differentiate(const Case& c, const Inputs& in, const std::vector<double>& out,
                        const std::vector<double>& dout, bool absolute = false) {
  const auto size = [absolute](double x) { return absolute ? std::fabs(x) : x; };
  const auto scale = static_cast<double>(c.scale());
  const auto dims = static_cast<size_t>(c.head_dim);
  Gradients g = {std::vector<double>(c.q.size()), std::vector<double>(c.k.size()),
                 std::vector<double>(c.v.size())};
  for (int64_t head = 0; head < c.heads; ++head) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      const size_t at = c.query(t, head);
      const std::vector<double> p = Probabilities(c, in, t, head);
      double out_term = 0;
      for (size_t d = 0; d < dims; ++d) out_term += size(dout[at + d] * out[at + d]);
      for (size_t i = 0; i < p.size(); ++i) {
        const size_t key =
            c.key(c.attend_from[static_cast<size_t>(t)] + static_cast<int64_t>(i), head);
        double dp = 0;
        for (size_t d = 0; d < dims; ++d) dp += size(dout[at + d] * in.v[key + d]);
        const double ds = p[i] * (absolute ? dp + out_term : dp - out_term);
        for (size_t d = 0; d < dims; ++d) {
          g.dq[at + d] += size(scale * ds * in.k[key + d]);
          g.dk[key + d] += size(scale * ds * in.q[at + d]);
          g.dv[key + d] += size(p[i] * dout[at + d]);
        }
      }
    }
  }
  return g;
}

struct BackwardOutputs {
  std::vector<bfloat16> dq;
  std::vector<bfloat16> dk;
  std::vector<bfloat16> dv;
};

BackwardOutputs RunBackward(const Case& c, const Outputs& forward, int threads = 2) {
  Matrices matrices(c, threads);
  Device& device = matrices.device();
  const int64_t Q = c.query_columns(), K = c.key_columns();
  const AttentionBackward op = {.q = matrices.Put(c.q, Q, 1),
                                .k = matrices.Put(c.k, K, 2),
                                .v = matrices.Put(c.v, K, 3),
                                .out = matrices.Put(forward.out, Q, 4),
                                .dout = matrices.Put(c.dout, Q, 5),
                                .log_sum_exp = device.Put(forward.log_sum_exp),
                                .attend_from = device.Put(c.attend_from),
                                .dq = matrices.Make(c.tokens, Q, 6),
                                .dk = matrices.Make(c.kv_tokens(), K, 7),
                                .dv = matrices.Make(c.kv_tokens(), K, 8),
                                .q_tokens = c.tokens,
                                .kv_tokens = c.kv_tokens(),
                                .heads = c.heads,
                                .kv_heads = c.kv_heads,
                                .head_dim = c.head_dim,
                                .scale = c.scale(),
                                .q_pitch = c.pitch(Q, 1),
                                .k_pitch = c.pitch(K, 2),
                                .v_pitch = c.pitch(K, 3),
                                .out_pitch = c.pitch(Q, 4),
                                .dout_pitch = c.pitch(Q, 5),
                                .dq_pitch = c.pitch(Q, 6),
                                .dk_pitch = c.pitch(K, 7),
                                .dv_pitch = c.pitch(K, 8)};
  const absl::Status status = device->Run(op);
  EXPECT_TRUE(status.ok()) << status;
  return {matrices.Get(op.dq, c.tokens, Q, 6), matrices.Get(op.dk, c.kv_tokens(), K, 7),
          matrices.Get(op.dv, c.kv_tokens(), K, 8)};
}

std::vector<Case> Cases() {
  return {
      {.tokens = 1, .heads = 1, .kv_heads = 1, .head_dim = 32, .attend_from = {0}},
      {.tokens = 31, .heads = 2, .kv_heads = 1, .head_dim = 64, .attend_from = Documents({31})},
      {.tokens = 33, .heads = 3, .kv_heads = 3, .head_dim = 20, .attend_from = Documents({33})},
      {.tokens = 64,
       .heads = 9,
       .kv_heads = 3,
       .head_dim = 16,
       .attend_from = Documents({1, 1, 30, 32})},
      {.tokens = 129,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 48,
       .attend_from = Documents({5, 60, 1, 63})},
      {.tokens = 200, .heads = 2, .kv_heads = 1, .head_dim = 128, .attend_from = Documents({200})},
      // Queries whose first tile of keys holds nothing that they may look at.
      {.tokens = 200,
       .heads = 2,
       .kv_heads = 2,
       .head_dim = 64,
       .attend_from = Documents({140, 60})},
      // Several segments, and tiles of keys that reach into their neighbours.
      {.tokens = 1200,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 16,
       .attend_from = Documents({300, 251, 3, 600, 46})},
      // Matrices that are slices of wider ones.
      {.tokens = 70,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 20,
       .attend_from = Documents({33, 37}),
       .gap = 5},
      // Fewer queries than keys: one, as a generation has, and more than a block.
      {.tokens = 1, .heads = 4, .kv_heads = 2, .head_dim = 64, .attend_from = {7}, .earlier = 200},
      {.tokens = 100,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 32,
       .attend_from = std::vector<int32_t>(100, 3),
       .earlier = 130,
       .gap = 3},
      // Several segments behind keys that only the first of them sees.
      {.tokens = 1200,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 16,
       .attend_from = LaterDocuments({551, 3, 600, 46}, 77),
       .earlier = 77},
  };
}

// One rounding to BF16, and float32 sums and exponentials over the absolute terms.
double Bound(double exact, double magnitude) {
  return std::ldexp(std::fabs(exact), -8) + std::ldexp(magnitude, -19);
}

BoundShare Share(const std::vector<bfloat16>& got, const std::vector<double>& exact,
                 const std::vector<double>& magnitude, double slip = 0) {
  BoundShare share;
  const std::vector<double> wide = testing_support::ToDouble(got);
  for (size_t i = 0; i < wide.size(); ++i)
    share.Add(wide[i], exact[i] + slip * magnitude[i], Bound(exact[i], magnitude[i]));
  return share;
}

class AttentionOn : public testing_support::EveryInstructionSet {};

TEST_P(AttentionOn, ForwardStaysWithinItsBound) {
  for (const Case& c : Cases()) {
    const Outputs got = RunForward(c);
    const Forward want = Exact(c, Widen(c));
    EXPECT_TRUE(Share(got.out, want.out, want.magnitude).Holds("out"));
    EXPECT_GT(Share(got.out, want.out, want.magnitude, 0.02).largest(), 1);
    BoundShare share;
    for (size_t i = 0; i < want.log_sum_exp.size(); ++i)
      share.Add(static_cast<double>(got.log_sum_exp[i]), want.log_sum_exp[i],
                std::ldexp(1 + std::fabs(want.log_sum_exp[i]), -19));
    EXPECT_TRUE(share.Holds("log_sum_exp"));
  }
}

TEST(AttentionBackward, TheReferenceAgreesWithDifferences) {
  const Case c = {
      .tokens = 7, .heads = 4, .kv_heads = 2, .head_dim = 4, .attend_from = Documents({2, 5})};
  const Inputs in = Widen(c);
  const std::vector<double> dout = testing_support::ToDouble(c.dout);
  const Gradients g = Differentiate(c, in, Exact(c, in).out, dout);
  const auto loss = [&](const Inputs& at) {
    const std::vector<double> out = Exact(c, at).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  const auto expect_slope = [&](std::vector<double> Inputs::*field, const std::vector<double>& dx) {
    for (size_t i = 0; i < dx.size(); ++i) {
      Inputs up = in;
      Inputs down = in;
      (up.*field)[i] += 1e-5;
      (down.*field)[i] -= 1e-5;
      EXPECT_NEAR((loss(up) - loss(down)) / 2e-5, dx[i], 1e-7);
    }
  };
  expect_slope(&Inputs::q, g.dq);
  expect_slope(&Inputs::k, g.dk);
  expect_slope(&Inputs::v, g.dv);
}

TEST_P(AttentionOn, BackwardStaysWithinItsBound) {
  for (const Case& c : Cases()) {
    const Outputs forward = RunForward(c);
    const BackwardOutputs got = RunBackward(c, forward);
    const std::vector<double> out = testing_support::ToDouble(forward.out);
    const std::vector<double> dout = testing_support::ToDouble(c.dout);
    const Gradients want = Differentiate(c, Widen(c), out, dout);
    const Gradients size = Differentiate(c, Widen(c), out, dout, true);
    EXPECT_TRUE(Share(got.dq, want.dq, size.dq).Holds("dq"));
    EXPECT_TRUE(Share(got.dk, want.dk, size.dk).Holds("dk"));
    EXPECT_TRUE(Share(got.dv, want.dv, size.dv).Holds("dv"));
    EXPECT_GT(Share(got.dv, want.dv, size.dv, 0.02).largest(), 1);
    if (c.tokens > 1) {
      EXPECT_GT(Share(got.dq, want.dq, size.dq, 0.02).largest(), 1);
      EXPECT_GT(Share(got.dk, want.dk, size.dk, 0.02).largest(), 1);
    }
  }
}

TEST(Attention, EarlierTokensAndOtherDocumentsDoNotSeeAChange) {
  Case c = {
      .tokens = 100, .heads = 2, .kv_heads = 1, .head_dim = 32, .attend_from = Documents({40, 60})};
  const Outputs before = RunForward(c);
  for (int64_t d = 0; d < c.head_dim; ++d) {
    c.k[c.key(30, 0) + static_cast<size_t>(d)] = ToBfloat16(50.0f);
    c.v[c.key(30, 0) + static_cast<size_t>(d)] = ToBfloat16(-1e20f);
  }
  const Outputs after = RunForward(c);
  const auto differs = [&](int64_t token) {
    for (size_t i = c.query(token, 0); i < c.query(token + 1, 0); ++i)
      if (before.out[i].bits != after.out[i].bits) return true;
    return false;
  };
  for (int64_t token = 0; token < c.tokens; ++token)
    EXPECT_EQ(differs(token), token >= 30 && token < 40) << token;
}

TEST_P(AttentionOn, LongRowsOfOneTokenDocumentsCopyTheirValues) {
  const Case c = {.tokens = 192,
                  .heads = 1,
                  .kv_heads = 1,
                  .head_dim = 32,
                  .attend_from = Documents(std::vector<int32_t>(192, 1))};
  const Outputs forward = RunForward(c);
  EXPECT_EQ(testing_support::Bits(forward.out), testing_support::Bits(c.v));
  const BackwardOutputs backward = RunBackward(c, forward);
  EXPECT_EQ(testing_support::Bits(backward.dv), testing_support::Bits(c.dout));
  for (const std::vector<bfloat16>* gradient : {&backward.dq, &backward.dk})
    for (const bfloat16 x : *gradient) EXPECT_NEAR(static_cast<double>(ToFloat(x)), 0.0, 1e-5);
}

TEST_P(AttentionOn, LargeScoresDoNotOverflow) {
  Case c = {
      .tokens = 64, .heads = 1, .kv_heads = 1, .head_dim = 32, .attend_from = Documents({64})};
  c.q = testing_support::NormalBfloat16(64 * 32, 1, 300.0f);
  c.k = testing_support::NormalBfloat16(64 * 32, 2, 300.0f);
  const Outputs forward = RunForward(c);
  for (const bfloat16 x : forward.out) ASSERT_TRUE(std::isfinite(ToFloat(x)));
  const BackwardOutputs backward = RunBackward(c, forward);
  for (const auto* gradient : {&backward.dq, &backward.dk, &backward.dv})
    for (const bfloat16 x : *gradient) ASSERT_TRUE(std::isfinite(ToFloat(x)));
}

TEST_P(AttentionOn, ThreadsDoNotChangeTheBits) {
  const Case c = {.tokens = 750,
                  .heads = 6,
                  .kv_heads = 2,
                  .head_dim = 32,
                  .attend_from = Documents({50, 500, 200})};
  const Outputs one = RunForward(c, 1);
  const Outputs three = RunForward(c, 3);
  EXPECT_EQ(testing_support::Bits(one.out), testing_support::Bits(three.out));
  EXPECT_EQ(one.log_sum_exp, three.log_sum_exp);
  const BackwardOutputs backward_one = RunBackward(c, one, 1);
  const BackwardOutputs backward_three = RunBackward(c, one, 3);
  EXPECT_EQ(testing_support::Bits(backward_one.dq), testing_support::Bits(backward_three.dq));
  EXPECT_EQ(testing_support::Bits(backward_one.dk), testing_support::Bits(backward_three.dk));
  EXPECT_EQ(testing_support::Bits(backward_one.dv), testing_support::Bits(backward_three.dv));
}

OCTAVO_ON_EVERY_INSTRUCTION_SET(AttentionOn);

TEST(Attention, Avx2AndAvx512GiveTheSameBits) {
  if (!cpu::IsAvailable(cpu::InstructionSet::kAvx512))
    GTEST_SKIP() << testing_support::WhyAbsent(cpu::InstructionSet::kAvx512);
  for (const Case& c : Cases()) {
    cpu::UseInstructionSet(cpu::InstructionSet::kAvx2);
    const Outputs narrow = RunForward(c);
    const BackwardOutputs narrow_backward = RunBackward(c, narrow);
    cpu::UseInstructionSet(cpu::InstructionSet::kAvx512);
    const Outputs wide = RunForward(c);
    const BackwardOutputs wide_backward = RunBackward(c, wide);
    cpu::UseBestInstructionSet();
    EXPECT_EQ(testing_support::Bits(narrow.out), testing_support::Bits(wide.out));
    EXPECT_EQ(narrow.log_sum_exp, wide.log_sum_exp);
    for (const auto field : {&BackwardOutputs::dq, &BackwardOutputs::dk, &BackwardOutputs::dv})
      EXPECT_EQ(testing_support::Bits(narrow_backward.*field),
                testing_support::Bits(wide_backward.*field));
  }
}

TEST(Attention, NamesASpanThatLooksAhead) {
  Device device;
  const auto x = testing_support::NormalBfloat16(2 * 32, 1);
  AttentionForward op = {.q = device.Put(x),
                         .k = device.Put(x),
                         .v = device.Put(x),
                         .attend_from = device.Put<int32_t>({0, 2}),
                         .out = device.Make<bfloat16>(64),
                         .log_sum_exp = nullptr,
                         .q_tokens = 2,
                         .kv_tokens = 2,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 32,
                         .scale = 1.0f};
  EXPECT_EQ(device->Run(op).message(),
            "AttentionForward: attend_from[1] is 2, must be in [0, 1] and not below its "
            "predecessor");
  op.kv_heads = 3;
  EXPECT_EQ(device->Run(op).message(), "AttentionForward: heads 1 is not a multiple of kv_heads 3");
}

TEST(Attention, RefusesMoreQueriesThanKeysAndRowsThatOverlap) {
  Device device;
  const bfloat16* const x = device.Put(testing_support::NormalBfloat16(2 * 32, 1));
  AttentionForward op = {.q = x,
                         .k = x,
                         .v = x,
                         .attend_from = device.Put<int32_t>({0, 0}),
                         .out = device.Make<bfloat16>(64),
                         .log_sum_exp = nullptr,
                         .q_tokens = 2,
                         .kv_tokens = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 32,
                         .scale = 1.0f};
  EXPECT_EQ(device->Run(op).message(), "AttentionForward: q_tokens 2 exceeds kv_tokens 1");
  op.kv_tokens = 2;
  op.v_pitch = 31;
  EXPECT_EQ(device->Run(op).message(), "AttentionForward: v_pitch is 31, must be 0 or at least 32");
}

}  // namespace
}  // namespace octavo::kernels
