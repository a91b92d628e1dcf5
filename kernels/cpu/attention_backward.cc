// Formula: kernels/ops/attention.h. Probabilities are computed again from q, k and log_sum_exp.
//
// dk and dv of a key collect from many queries. Each KV head's query blocks are dealt to kParts
// sums, each with one writer that goes through its blocks in order, and the sums are then added in
// order: the result does not depend on the number of threads.
#include <omp.h>

#include "base/status.h"
#include "kernels/cpu/attention_shape.h"
#include "kernels/cpu/operations.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kTasks = 8;  // at least so many independent sums, for so many threads

struct Task {
  const AttentionBackward* op;
  const AttentionShape* shape;
  const float* k_panels;  // of the KV head
  const float* k_rows;
  const float* v_panels;
  float* dk;  // [padded_tokens, padded_dim] of this task alone
  float* dv;
  float* work;  // of the thread
  int64_t kv_head;
  int64_t part;
  int64_t parts;
};

// A block's working set in a thread's memory.
struct Work {
  float* q;     // [kBlock, padded_dim]
  float* dout;  // [kBlock, padded_dim]
  float* dq;    // [kBlock, padded_dim]
  float* p;     // [kBlock, keys]
  float* ds;    // [kBlock, keys]

  static int64_t Floats(const AttentionShape& shape) {
    return kBlock * (3 * shape.padded_dim + 2 * shape.padded_tokens);
  }
  Work(const AttentionShape& shape, float* memory)
      : q(memory),
        dout(q + kBlock * shape.padded_dim),
        dq(dout + kBlock * shape.padded_dim),
        p(dq + kBlock * shape.padded_dim),
        ds(p + kBlock * shape.padded_tokens) {}
};

// result[key] += sum over the block's queries of weights[query, key] * x[query]
OCTAVO_INLINE void SumOverQueries(const AttentionShape& shape, const Span& span,
                                  const float* weights, const float* x, float* result) {
  Multiply({.a = weights,
            .a_row_stride = 1,
            .a_k_stride = span.keys,
            .b = x,
            .b_pitch = shape.padded_dim,
            .b_panel_stride = kPanel,
            .c = result + span.from * shape.padded_dim,
            .c_pitch = shape.padded_dim,
            .m = span.keys,
            .n = shape.padded_dim,
            .k = span.queries()});
}

OCTAVO_INLINE float Dot(const bfloat16* x, const bfloat16* y, int64_t count) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sums += Load(x + i) * Load(y + i);
  if (i < count) sums += LoadPart(x + i, count - i) * LoadPart(y + i, count - i);
  return Sum(sums);
}

// p = e^(score - log_sum_exp) from scores in p; ds = p (dp - dout . out) from dp in ds.
OCTAVO_INLINE void Differentiate(const AttentionShape& shape, const Span& span, int64_t token,
                                 float log_sum_exp, float dout_out, float* p, float* ds) {
  ScaleAndMask(shape, span, token, p);
  for (int64_t j = 0; j < span.keys; j += kLanes) {
    const Floats probability = Exp(Load(p + j) - log_sum_exp);
    Store(p + j, probability);
    Store(ds + j, probability * (Load(ds + j) - dout_out));
  }
}

OCTAVO_INLINE void RunBlock(const Task& task, int64_t head, int64_t block) {
  const AttentionBackward& op = *task.op;
  const AttentionShape& shape = *task.shape;
  const Span span = SpanOf(shape, block);
  const int64_t pitch = shape.heads * shape.head_dim;
  const int64_t at = span.start * pitch + head * shape.head_dim;
  const Work work(shape, task.work);

  WidenRows(op.q + at, pitch, span.queries(), shape, work.q);
  WidenRows(op.dout + at, pitch, span.queries(), shape, work.dout);
  DotAll(shape, span, work.q, task.k_panels, work.p);
  DotAll(shape, span, work.dout, task.v_panels, work.ds);
  for (int64_t i = 0; i < span.queries(); ++i) {
    const int64_t token = span.start + i;
    const float dout_out = Dot(op.dout + at + i * pitch, op.out + at + i * pitch, shape.head_dim);
    Differentiate(shape, span, token, op.log_sum_exp[head * shape.tokens + token], dout_out,
                  work.p + i * span.keys, work.ds + i * span.keys);
  }
  std::fill(work.dq, work.dq + span.queries() * shape.padded_dim, 0.0f);
  SumAll(shape, span, work.ds, task.k_rows, work.dq);
  for (int64_t i = 0; i < span.queries(); ++i) {
    bfloat16* const dq = op.dq + at + i * pitch;
    for (int64_t d = 0; d < shape.head_dim; ++d)
      dq[d] = ToBfloat16(work.dq[i * shape.padded_dim + d] * shape.scale);
  }
  SumOverQueries(shape, span, work.ds, work.q, task.dk);
  SumOverQueries(shape, span, work.p, work.dout, task.dv);
}

struct BackwardTask {
  OCTAVO_INLINE static void Run(const Task* task) {
    const AttentionShape& shape = *task->shape;
    std::fill(task->dk, task->dk + shape.head_floats(), 0.0f);
    std::fill(task->dv, task->dv + shape.head_floats(), 0.0f);
    for (int64_t i = 0; i < shape.group(); ++i) {
      for (int64_t block = task->part; block < shape.blocks(); block += task->parts)
        RunBlock(*task, task->kv_head * shape.group() + i, block);
    }
  }
};

// Buffers of the whole operation, all float32.
struct Buffers {
  int64_t parts;
  float* k_panels;  // [kv_heads, head_floats]
  float* k_rows;
  float* v_panels;
  float* dk;  // [kv_heads, parts, head_floats]
  float* dv;
  float* work;  // [threads, Work]

  static int64_t Floats(const AttentionShape& shape, int64_t parts) {
    return shape.kv_heads * shape.head_floats() * (3 + 2 * parts) +
           omp_get_max_threads() * Work::Floats(shape);
  }
  Buffers(const AttentionShape& shape, int64_t part_count, float* memory) : parts(part_count) {
    const int64_t all_heads = shape.kv_heads * shape.head_floats();
    k_panels = memory;
    k_rows = k_panels + all_heads;
    v_panels = k_rows + all_heads;
    dk = v_panels + all_heads;
    dv = dk + parts * all_heads;
    work = dv + parts * all_heads;
  }
};

void RunTask(const AttentionBackward& op, const AttentionShape& shape, const Buffers& buffers,
             int64_t index) {
  const int64_t kv_head = index / buffers.parts;
  const int64_t of_head = kv_head * shape.head_floats();
  const Task task = {.op = &op,
                     .shape = &shape,
                     .k_panels = buffers.k_panels + of_head,
                     .k_rows = buffers.k_rows + of_head,
                     .v_panels = buffers.v_panels + of_head,
                     .dk = buffers.dk + index * shape.head_floats(),
                     .dv = buffers.dv + index * shape.head_floats(),
                     .work = buffers.work + omp_get_thread_num() * Work::Floats(shape),
                     .kv_head = kv_head,
                     .part = index % buffers.parts,
                     .parts = buffers.parts};
  Vectorized<BackwardTask>(&task);
}

// One token of one KV head: result = bf16(scale * sum over parts).
void AddParts(const AttentionShape& shape, const Buffers& buffers, const float* sums,
              int64_t kv_head, int64_t token, float scale, bfloat16* result) {
  const float* const first =
      sums + kv_head * buffers.parts * shape.head_floats() + token * shape.padded_dim;
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    float sum = first[d];
    for (int64_t part = 1; part < buffers.parts; ++part)
      sum += first[part * shape.head_floats() + d];
    result[(token * shape.kv_heads + kv_head) * shape.head_dim + d] = ToBfloat16(sum * scale);
  }
}

}  // namespace

absl::Status RunAttention(const AttentionBackward& operation, Scratch* scratch) {
  const AttentionShape shape(operation);
  RETURN_IF_ERROR(CheckSpans("AttentionBackward", shape));
  const int64_t parts = std::min(CeilDiv(kTasks, shape.kv_heads), shape.blocks());
  ASSIGN_OR_RETURN(float* const memory, scratch->Get<float>(Buffers::Floats(shape, parts)));
  const Buffers buffers(shape, parts, memory);
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t g = 0; g < shape.kv_heads; ++g) {
      const int64_t at = g * shape.head_floats();
      Vectorized<WidenHeadPanels>(&shape, operation.k + g * shape.head_dim, buffers.k_panels + at);
      Vectorized<WidenHeadRows>(&shape, operation.k + g * shape.head_dim, buffers.k_rows + at);
      Vectorized<WidenHeadPanels>(&shape, operation.v + g * shape.head_dim, buffers.v_panels + at);
    }
#pragma omp for schedule(static, 1)
    for (int64_t i = 0; i < shape.kv_heads * parts; ++i) RunTask(operation, shape, buffers, i);
#pragma omp for schedule(static)
    for (int64_t token = 0; token < shape.tokens; ++token) {
      for (int64_t g = 0; g < shape.kv_heads; ++g) {
        AddParts(shape, buffers, buffers.dk, g, token, shape.scale, operation.dk);
        AddParts(shape, buffers, buffers.dv, g, token, 1.0f, operation.dv);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
