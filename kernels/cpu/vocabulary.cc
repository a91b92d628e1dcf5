// Formulas: kernels/ops/vocabulary.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vocabulary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kSumChunk = 1024;  // exponentials under one float32 partial sum
constexpr float kLowest = -std::numeric_limits<float>::infinity();

void AddRow(const bfloat16* x, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes)
    StoreUpTo(sum + i, LoadUpTo(sum + i, count - i) + LoadUpTo(x + i, count - i), count - i);
}

// The last `count` < kLanes logits; the other lanes are -infinity.
HWY_INLINE Floats LoadTail(const bfloat16* from, int64_t count) {
  float padded[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) padded[i] = i < count ? ToFloat(from[i]) : kLowest;
  return Load(padded);
}

// log sum_i e^x_i = largest + log_rest; apart, so that neither rounds the other away.
struct SplitLogSumExp {
  float largest;
  float log_rest;
};

HWY_INLINE SplitLogSumExp LogSumExp(const bfloat16* logits, int64_t count) {
  const int64_t whole = count / kLanes * kLanes;
  Floats maxima = Splat(kLowest);
  for (int64_t i = 0; i < whole; i += kLanes) maxima = Max(Load(logits + i), maxima);
  if (whole < count) maxima = Max(LoadTail(logits + whole, count - whole), maxima);
  const float largest = MaxLane(maxima);
  double total = 0;
  for (int64_t start = 0; start < whole; start += kSumChunk) {
    const int64_t end = std::min(start + kSumChunk, whole);
    Floats sums = Zeros();
    for (int64_t i = start; i < end; i += kLanes)
      sums = sums + Exp(Load(logits + i) - Splat(largest));
    total += static_cast<double>(Sum(sums));
  }
  if (whole < count) {
    const Floats tail = Exp(LoadTail(logits + whole, count - whole) - Splat(largest));
    total += static_cast<double>(Sum(tail));
  }
  return {.largest = largest, .log_rest = static_cast<float>(std::log(total))};
}

HWY_INLINE void WriteGradient(bfloat16* logits, int64_t count, const SplitLogSumExp& sum,
                              float scale) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats x = LoadUpTo(logits + i, count - i);
    const Floats p = Exp((x - Splat(sum.largest)) - Splat(sum.log_rest));
    StoreUpTo(logits + i, p * Splat(scale), count - i);
  }
}

void CrossEntropyRow(const CrossEntropy& op, int64_t token) {
  bfloat16* const logits = op.logits + token * op.vocabulary;
  const int32_t target = op.targets[token];
  if (target < 0) {
    op.loss[token] = 0.0f;
    if (op.write_gradient)
      std::memset(logits, 0, static_cast<size_t>(op.vocabulary) * sizeof(bfloat16));
    return;
  }
  const SplitLogSumExp sum = LogSumExp(logits, op.vocabulary);
  const float minus_loss = (ToFloat(logits[target]) - sum.largest) - sum.log_rest;
  op.loss[token] = -minus_loss;
  if (!op.write_gradient) return;
  WriteGradient(logits, op.vocabulary, sum, op.gradient_scale);
  const float gradient = std::expm1(minus_loss) * op.gradient_scale;  // p - 1
  logits[target] = ToBfloat16(gradient);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(AddRow);
HWY_EXPORT(CrossEntropyRow);

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
      HWY_DYNAMIC_DISPATCH(AddRow)
      (operation.dy + t * operation.columns + start,
       operation.dtable + operation.ids[t] * operation.columns + start, width);
    }
  }
  return absl::OkStatus();
}

absl::Status RunOperation(const CrossEntropy& operation) {
  RETURN_IF_ERROR(CheckTargets(operation));
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.tokens; ++token)
    HWY_DYNAMIC_DISPATCH(CrossEntropyRow)(operation, token);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
