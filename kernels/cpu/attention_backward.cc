// Formula: kernels/ops/attention.h. Probabilities are computed again from q, k and log_sum_exp.
//
// dk and dv of a key collect from many queries. The query blocks of a KV head and a segment are
// dealt to sums of their own, each with one writer that goes through its blocks in order, and the
// sums are then added in order: the result does not depend on the number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <omp.h>

#include "base/status.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/operations.h"

#ifndef OCTAVO_KERNELS_CPU_ATTENTION_BACKWARD_
#define OCTAVO_KERNELS_CPU_ATTENTION_BACKWARD_
namespace octavo::kernels::cpu {

// The blocks part, part + parts, ... of a segment, for every query head of a KV head.
struct BackwardTask {
  const AttentionBackward* op;
  const AttentionShape* shape;
  const float* k_panels;  // of the KV head
  const float* v_panels;
  float* dk;  // [kv_tokens, padded_dim] of this part, the rows of other segments untouched
  float* dv;
  float* memory;  // of the thread
  TokenRange segment;
  int64_t kv_head;
  int64_t part;
  int64_t parts;
};

// A block's working set in a thread's memory.
struct BackwardWork {
  float* q;       // [kBlock, padded_dim]
  float* dout;    // [kBlock, padded_dim]
  float* dq;      // [kBlock, padded_dim]
  float* p;       // [kBlock, keys]
  float* ds;      // [kBlock, keys]
  float* k_rows;  // [keys, padded_dim]

  BackwardWork(const AttentionShape& shape, float* memory)
      : q(memory),
        dout(q + kBlock * shape.padded_dim),
        dq(dout + kBlock * shape.padded_dim),
        p(dq + kBlock * shape.padded_dim),
        ds(p + kBlock * kTileKeys),
        k_rows(ds + kBlock * kTileKeys) {}
};

// Sums over parts of one KV head: result = bf16(factor * sum).
struct PartSums {
  const float* sums;  // [parts, kv_tokens, padded_dim]
  int64_t parts;
  float factor;
  bfloat16* result;  // the head's first token
  int64_t pitch;
};

}  // namespace octavo::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// result[key] += sum over the queries of weights[query, key] * x[query], for the tile's keys that
// the block may look at: rows of other segments have other writers.
HWY_INLINE void SumOverQueries(const AttentionShape& shape, int64_t queries, const KeyTile& tile,
                               const float* weights, const float* x, float* result) {
  Multiply<Result::kAdd>({.a = weights + (tile.first - tile.from),
                          .a_row_stride = 1,
                          .a_k_stride = tile.keys,
                          .b = x,
                          .b_pitch = shape.padded_dim,
                          .b_panel_stride = kPanel,
                          .c = result + tile.first * shape.padded_dim,
                          .c_pitch = shape.padded_dim,
                          .m = tile.end - tile.first,
                          .n = shape.padded_dim,
                          .k = queries});
}

HWY_INLINE float Dot(const bfloat16* x, const bfloat16* y, int64_t count) {
  Floats sums = Zeros();
  for (int64_t i = 0; i < count; i += kLanes)
    sums = MulAdd(LoadUpTo(x + i, count - i), LoadUpTo(y + i, count - i), sums);
  return Sum(sums);
}

// p = e^(score - log_sum_exp) from scores in p; ds = p (dp - dout . out) from dp in ds.
HWY_INLINE void DifferentiateRow(int64_t keys, float log_sum_exp, float dout_out, float* p,
                                 float* ds) {
  const Floats subtracted = Splat(log_sum_exp);
  const Floats mean = Splat(dout_out);
  for (int64_t j = 0; j < keys; j += kLanes) {
    const Floats probability = Exp(Load(p + j) - subtracted);
    Store(p + j, probability);
    Store(ds + j, probability * (Load(ds + j) - mean));
  }
}

HWY_INLINE void RunBlock(const BackwardTask& task, int64_t head, const TokenRange& queries) {
  const AttentionBackward& op = *task.op;
  const AttentionShape& shape = *task.shape;
  const int64_t of_head = head * shape.head_dim;
  const int64_t dout_pitch = PitchOr(op.dout_pitch, shape.query_columns());
  const int64_t dq_pitch = PitchOr(op.dq_pitch, shape.query_columns());
  const bfloat16* const dout = op.dout + queries.start * dout_pitch + of_head;
  const bfloat16* const out = op.out + queries.start * shape.out_pitch + of_head;
  bfloat16* const dq = op.dq + queries.start * dq_pitch + of_head;
  const KeyHead k = {op.k + task.kv_head * shape.head_dim, shape.k_pitch};
  const float* const log_sum_exp = op.log_sum_exp + head * shape.q_tokens + queries.start;
  const BackwardWork work(shape, task.memory);
  float dout_out[kBlock];

  WidenRows(shape, op.q + queries.start * shape.q_pitch + of_head, shape.q_pitch, queries.count(),
            work.q);
  WidenRows(shape, dout, dout_pitch, queries.count(), work.dout);
  std::fill(work.dq, work.dq + queries.count() * shape.padded_dim, 0.0f);
  for (int64_t i = 0; i < queries.count(); ++i)
    dout_out[i] = Dot(dout + i * dout_pitch, out + i * shape.out_pitch, shape.head_dim);
  for (KeyTile tile = FirstTile(shape, queries); tile.from < tile.end;
       tile = NextTile(shape, queries, tile)) {
    WidenTile(shape, k, tile, work.k_rows);
    DotAll(shape, queries.count(), tile, work.q, task.k_panels, work.p);
    DotAll(shape, queries.count(), tile, work.dout, task.v_panels, work.ds);
    for (int64_t i = 0; i < queries.count(); ++i) {
      float* const p = work.p + i * tile.keys;
      ScaleAndMask(shape, tile, queries.start + i, p);
      DifferentiateRow(tile.keys, log_sum_exp[i], dout_out[i], p, work.ds + i * tile.keys);
    }
    SumOverKeys(shape, queries.count(), tile, work.ds, work.k_rows, work.dq);
    SumOverQueries(shape, queries.count(), tile, work.ds, work.q, task.dk);
    SumOverQueries(shape, queries.count(), tile, work.p, work.dout, task.dv);
  }
  for (int64_t i = 0; i < queries.count(); ++i) {
    StoreRow(shape, work.dq + i * shape.padded_dim, shape.scale, dq + i * dq_pitch);
  }
}

void RunBackwardTask(const BackwardTask& task) {
  const AttentionShape& shape = *task.shape;
  const TokenRange keys = KeysOf(shape, task.segment);
  const int64_t start = keys.start * shape.padded_dim;
  const int64_t end = keys.end * shape.padded_dim;
  std::fill(task.dk + start, task.dk + end, 0.0f);
  std::fill(task.dv + start, task.dv + end, 0.0f);
  for (int64_t i = 0; i < shape.group(); ++i) {
    for (int64_t block = task.part; block < BlockCount(task.segment); block += task.parts)
      RunBlock(task, task.kv_head * shape.group() + i, BlockOf(task.segment, block));
  }
}

void AddParts(const AttentionShape& shape, const PartSums& of, int64_t token) {
  const float* const first = of.sums + token * shape.padded_dim;
  bfloat16* const result = of.result + token * of.pitch;
  for (int64_t d = 0; d < shape.head_dim; d += kLanes) {
    Floats sum = Load(first + d);
    for (int64_t part = 1; part < of.parts; ++part)
      sum = sum + Load(first + part * shape.kv_tokens * shape.padded_dim + d);
    StoreUpTo(result + d, sum * Splat(of.factor), shape.head_dim - d);
  }
}

void PackBackward(const AttentionShape& shape, const KeyHead& head, int64_t index, float* panels) {
  PackPanel(shape, head, index, panels);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(RunBackwardTask);
HWY_EXPORT(AddParts);
HWY_EXPORT(PackBackward);

// Buffers of the whole operation, all float32.
struct Buffers {
  int64_t parts;
  int64_t part_floats;
  float* k_panels;  // [kv_heads, head_floats]
  float* v_panels;
  float* dk;  // [kv_heads, parts, kv_tokens, padded_dim]
  float* dv;
  float* work;  // [threads, BackwardWork]

  Buffers(const AttentionShape& shape, float* memory)
      : parts(shape.parts()), part_floats(shape.kv_tokens * shape.padded_dim) {
    k_panels = memory;
    v_panels = k_panels + shape.kv_heads * shape.head_floats();
    dk = v_panels + shape.kv_heads * shape.head_floats();
    dv = dk + shape.kv_heads * parts * part_floats;
    work = dv + shape.kv_heads * parts * part_floats;
  }
};

void RunTask(const AttentionBackward& op, const AttentionShape& shape, const Buffers& buffers,
             const TokenRange& segment, int64_t index) {
  const int64_t kv_head = index / buffers.parts;
  const int64_t of_head = kv_head * shape.head_floats();
  HWY_DYNAMIC_DISPATCH(RunBackwardTask)
  ({.op = &op,
    .shape = &shape,
    .k_panels = buffers.k_panels + of_head,
    .v_panels = buffers.v_panels + of_head,
    .dk = buffers.dk + index * buffers.part_floats,
    .dv = buffers.dv + index * buffers.part_floats,
    .memory = buffers.work + omp_get_thread_num() * shape.BackwardWorkFloats(),
    .segment = segment,
    .kv_head = kv_head,
    .part = index % buffers.parts,
    .parts = buffers.parts});
}

// dk and dv of one token.
void FinishToken(const AttentionBackward& op, const AttentionShape& shape, const Buffers& buffers,
                 int64_t token) {
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t first = head * buffers.parts * buffers.part_floats;
    const int64_t at = head * shape.head_dim;
    HWY_DYNAMIC_DISPATCH(AddParts)
    (shape,
     {.sums = buffers.dk + first,
      .parts = buffers.parts,
      .factor = shape.scale,
      .result = op.dk + at,
      .pitch = PitchOr(op.dk_pitch, shape.key_columns())},
     token);
    HWY_DYNAMIC_DISPATCH(AddParts)
    (shape,
     {.sums = buffers.dv + first,
      .parts = buffers.parts,
      .factor = 1.0f,
      .result = op.dv + at,
      .pitch = PitchOr(op.dv_pitch, shape.key_columns())},
     token);
  }
}

}  // namespace

absl::Status RunAttention(const AttentionBackward& operation, Scratch* scratch) {
  const AttentionShape shape(operation);
  RETURN_IF_ERROR(CheckSpans("AttentionBackward", shape));
  ASSIGN_OR_RETURN(float* const memory,
                   scratch->Get<float>(shape.BackwardFloats(omp_get_max_threads())));
  const Buffers buffers(shape, memory);
  const std::vector<TokenRange> segments = SegmentsOf(shape);
  const int64_t panels = shape.padded_tokens / kPanel;
  const int64_t sums = shape.kv_heads * buffers.parts;  // of a segment
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < shape.kv_heads * panels; ++i) {
      const int64_t head = i / panels;
      const int64_t of_head = head * shape.head_floats();
      const auto pack = HWY_DYNAMIC_DISPATCH(PackBackward);
      pack(shape, {operation.k + head * shape.head_dim, shape.k_pitch}, i % panels,
           buffers.k_panels + of_head);
      pack(shape, {operation.v + head * shape.head_dim, shape.v_pitch}, i % panels,
           buffers.v_panels + of_head);
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < static_cast<int64_t>(segments.size()) * sums; ++i)
      RunTask(operation, shape, buffers, segments[static_cast<size_t>(i / sums)], i % sums);
#pragma omp for schedule(static)
    for (int64_t token = 0; token < shape.kv_tokens; ++token)
      FinishToken(operation, shape, buffers, token);
  }
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
