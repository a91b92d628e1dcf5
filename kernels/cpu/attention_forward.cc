// Formula: kernels/ops/attention.h.
#include <omp.h>

#include <cmath>

#include "base/status.h"
#include "kernels/cpu/attention_shape.h"
#include "kernels/cpu/operations.h"

namespace octavo::kernels::cpu {
namespace {

struct Task {
  const AttentionForward* op;
  const AttentionShape* shape;
  const float* k_panels;  // of the head
  const float* v_rows;
  float* work;  // of the thread: q, sums [kBlock, padded_dim], scores [kBlock, keys]
  int64_t head;
  int64_t block;
};

// A row of scores becomes e^(score - largest); returns log sum e^score.
OCTAVO_INLINE float Exponentiate(float* row, int64_t keys, float* inverse_sum) {
  Floats maxima = Load(row);
  for (int64_t j = kLanes; j < keys; j += kLanes) maxima = Max(Load(row + j), maxima);
  const float largest = MaxLane(maxima);
  Floats sums = {};
  for (int64_t j = 0; j < keys; j += kLanes) {
    const Floats p = Exp(Load(row + j) - largest);
    sums += p;
    Store(row + j, p);
  }
  const float sum = Sum(sums);
  *inverse_sum = 1.0f / sum;
  return largest + std::log(sum);
}

struct ForwardBlock {
  OCTAVO_INLINE static void Run(const Task* task) {
    const AttentionForward& op = *task->op;
    const AttentionShape& shape = *task->shape;
    const Span span = SpanOf(shape, task->block);
    const int64_t pitch = shape.heads * shape.head_dim;
    const int64_t at = span.start * pitch + task->head * shape.head_dim;
    float* const q = task->work;
    float* const sums = q + kBlock * shape.padded_dim;
    float* const scores = sums + kBlock * shape.padded_dim;
    float inverse_sums[kBlock];

    WidenRows(op.q + at, pitch, span.queries(), shape, q);
    DotAll(shape, span, q, task->k_panels, scores);
    for (int64_t i = 0; i < span.queries(); ++i) {
      const int64_t token = span.start + i;
      ScaleAndMask(shape, span, token, scores + i * span.keys);
      const float log_sum_exp = Exponentiate(scores + i * span.keys, span.keys, &inverse_sums[i]);
      if (op.log_sum_exp != nullptr)
        op.log_sum_exp[task->head * shape.tokens + token] = log_sum_exp;
    }
    std::fill(sums, sums + span.queries() * shape.padded_dim, 0.0f);
    SumAll(shape, span, scores, task->v_rows, sums);
    for (int64_t i = 0; i < span.queries(); ++i) {
      bfloat16* const out = op.out + at + i * pitch;
      for (int64_t d = 0; d < shape.head_dim; ++d)
        out[d] = ToBfloat16(sums[i * shape.padded_dim + d] * inverse_sums[i]);
    }
  }
};

}  // namespace

absl::Status RunAttention(const AttentionForward& operation, Scratch* scratch) {
  const AttentionShape shape(operation);
  RETURN_IF_ERROR(CheckSpans("AttentionForward", shape));
  const int64_t all_heads = shape.kv_heads * shape.head_floats();
  const int64_t work_floats = kBlock * (2 * shape.padded_dim + shape.padded_tokens);
  ASSIGN_OR_RETURN(float* const memory,
                   scratch->Get<float>(2 * all_heads + omp_get_max_threads() * work_floats));
  float* const k_panels = memory;
  float* const v_rows = k_panels + all_heads;
  const int64_t blocks = shape.blocks();
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t g = 0; g < shape.kv_heads; ++g) {
      const int64_t at = g * shape.head_floats();
      Vectorized<WidenHeadPanels>(&shape, operation.k + g * shape.head_dim, k_panels + at);
      Vectorized<WidenHeadRows>(&shape, operation.v + g * shape.head_dim, v_rows + at);
    }
    float* const work = v_rows + all_heads + omp_get_thread_num() * work_floats;
#pragma omp for schedule(static, 1)
    for (int64_t i = 0; i < shape.heads * blocks; ++i) {
      const int64_t head = i / blocks;
      const int64_t at = head / shape.group() * shape.head_floats();
      const Task task = {.op = &operation,
                         .shape = &shape,
                         .k_panels = k_panels + at,
                         .v_rows = v_rows + at,
                         .work = work,
                         .head = head,
                         .block = i % blocks};
      Vectorized<ForwardBlock>(&task);
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
