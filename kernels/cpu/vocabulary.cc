// Formulas: kernels/ops/vocabulary.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kColumnChunk = 64;  // columns of dtable a thread adds to
constexpr int64_t kSumChunk = 1024;   // exponentials under one float32 partial sum

absl::Status CheckIds(const char* operation, const int32_t* ids, int64_t count,
                      int64_t vocabulary) {
  for (int64_t t = 0; t < count; ++t) {
    if (ids[t] < 0 || ids[t] >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(operation, ": id of token ", t, " is ", ids[t],
                                                     ", must be in [0, ", vocabulary, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTargets(const CrossEntropy& op) {
  for (int64_t t = 0; t < op.tokens; ++t) {
    if (op.targets[t] >= op.vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat("CrossEntropy: target of token ", t, " is ",
                                                     op.targets[t], ", must be below ",
                                                     op.vocabulary));
    }
  }
  return absl::OkStatus();
}

struct AddRow {
  OCTAVO_INLINE static void Run(const bfloat16* x, float* sum, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) Store(sum + i, Load(sum + i) + Load(x + i));
    for (; i < count; ++i) sum[i] += ToFloat(x[i]);
  }
};

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The last `count` < kLanes logits; the other lanes are -infinity.
OCTAVO_INLINE Floats LoadTail(const bfloat16* from, int64_t count) {
  float padded[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) padded[i] = i < count ? ToFloat(from[i]) : kLowest;
  return Load(padded);
}

// log sum_i e^x_i = largest + log_rest; apart, so that neither rounds the other away.
struct SplitLogSumExp {
  float largest;
  float log_rest;
};

struct LogSumExp {
  OCTAVO_INLINE static void Run(const bfloat16* logits, int64_t count, SplitLogSumExp* result) {
    const int64_t whole = count / kLanes * kLanes;
    Floats maxima = Splat(kLowest);
    for (int64_t i = 0; i < whole; i += kLanes) maxima = Max(Load(logits + i), maxima);
    if (whole < count) maxima = Max(LoadTail(logits + whole, count - whole), maxima);
    const float largest = MaxLane(maxima);
    double total = 0;
    for (int64_t start = 0; start < whole; start += kSumChunk) {
      const int64_t end = std::min(start + kSumChunk, whole);
      Floats sums = {};
      for (int64_t i = start; i < end; i += kLanes) sums += Exp(Load(logits + i) - largest);
      total += static_cast<double>(Sum(sums));
    }
    if (whole < count) {
      const Floats tail = Exp(LoadTail(logits + whole, count - whole) - largest);
      total += static_cast<double>(Sum(tail));
    }
    *result = {.largest = largest, .log_rest = static_cast<float>(std::log(total))};
  }
};

struct WriteGradient {
  OCTAVO_INLINE static Floats Of(Floats x, SplitLogSumExp sum, float scale) {
    return Exp((x - sum.largest) - sum.log_rest) * scale;
  }
  OCTAVO_INLINE static void Run(bfloat16* logits, int64_t count, SplitLogSumExp sum, float scale) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) Store(logits + i, Of(Load(logits + i), sum, scale));
    if (i == count) return;
    const int64_t rest = count - i;
    StorePart(logits + i, Of(LoadPart(logits + i, rest), sum, scale), rest);
  }
};

void RunRow(const CrossEntropy& op, int64_t token) {
  bfloat16* const logits = op.logits + token * op.vocabulary;
  const int32_t target = op.targets[token];
  if (target < 0) {
    op.loss[token] = 0.0f;
    if (op.write_gradient)
      std::memset(logits, 0, static_cast<size_t>(op.vocabulary) * sizeof(bfloat16));
    return;
  }
  SplitLogSumExp sum;
  Vectorized<LogSumExp>(logits, op.vocabulary, &sum);
  const float minus_loss = (ToFloat(logits[target]) - sum.largest) - sum.log_rest;
  op.loss[token] = -minus_loss;
  if (!op.write_gradient) return;
  Vectorized<WriteGradient>(logits, op.vocabulary, sum, op.gradient_scale);
  const float gradient = std::expm1(minus_loss) * op.gradient_scale;  // p - 1
  logits[target] = ToBfloat16(gradient);
}

}  // namespace

absl::Status RunOperation(const EmbeddingForward& operation) {
  const size_t row_bytes = static_cast<size_t>(operation.columns) * sizeof(bfloat16);
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < operation.tokens; ++t) {
    std::memcpy(operation.y + t * operation.columns,
                operation.table + operation.ids[t] * operation.columns, row_bytes);
  }
  return absl::OkStatus();
}

// A thread owns columns, so every element of dtable has one writer that goes through the tokens in
// order.
absl::Status RunOperation(const EmbeddingBackward& operation) {
  RETURN_IF_ERROR(
      CheckIds("EmbeddingBackward", operation.ids, operation.tokens, operation.vocabulary));
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.columns; start += kColumnChunk) {
    const int64_t width = std::min(kColumnChunk, operation.columns - start);
    for (int64_t t = 0; t < operation.tokens; ++t) {
      Vectorized<AddRow>(operation.dy + t * operation.columns + start,
                         operation.dtable + operation.ids[t] * operation.columns + start, width);
    }
  }
  return absl::OkStatus();
}

absl::Status RunOperation(const CrossEntropy& operation) {
  RETURN_IF_ERROR(CheckTargets(operation));
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.tokens; ++token) RunRow(operation, token);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
