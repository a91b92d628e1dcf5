// Formula: kernels/ops/attention.h. A block of queries goes through its keys tile by tile; its sums
// belong to the largest score so far and are rescaled when a tile holds a larger one
// (arXiv:2205.14135), so no row of scores is ever whole.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <omp.h>

#include <cmath>
#include <limits>

#include "base/status.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/operations.h"

#ifndef OCTAVO_KERNELS_CPU_ATTENTION_FORWARD_
#define OCTAVO_KERNELS_CPU_ATTENTION_FORWARD_
namespace octavo::kernels::cpu {

struct ForwardTask {
  const AttentionForward* op;
  const AttentionShape* shape;
  const float* k_panels;  // of the KV head
  float* memory;          // of the thread
  int64_t head;
  TokenRange queries;
};

// A block's working set in a thread's memory.
struct ForwardWork {
  float* q;       // [kBlock, padded_dim]
  float* sums;    // [kBlock, padded_dim]
  float* scores;  // [kBlock, keys]
  float* v_rows;  // [keys, padded_dim]

  ForwardWork(const AttentionShape& shape, float* memory)
      : q(memory),
        sums(q + kBlock * shape.padded_dim),
        scores(sums + kBlock * shape.padded_dim),
        v_rows(scores + kBlock * kTileKeys) {}
};

}  // namespace octavo::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The softmax of one query so far: its probabilities are e^(score - largest) / sum.
struct Running {
  float largest = std::numeric_limits<float>::lowest();  // finite: -infinity less itself is NaN
  float sum = 0;
};

// A tile's row of scores becomes e^(score - largest); `sums` follows when `largest` grows.
HWY_INLINE void Exponentiate(const AttentionShape& shape, int64_t keys, float* row, float* sums,
                             Running* running) {
  Floats maxima = Splat(running->largest);
  for (int64_t j = 0; j < keys; j += kLanes) maxima = Max(Load(row + j), maxima);
  const float largest = MaxLane(maxima);
  if (largest > running->largest) {
    const float rescale = hn::GetLane(Exp(hn::Set(FloatTag(), running->largest - largest)));
    running->largest = largest;
    running->sum *= rescale;
    for (int64_t d = 0; d < shape.padded_dim; d += kLanes)
      Store(sums + d, Load(sums + d) * Splat(rescale));
  }
  const Floats subtracted = Splat(largest);
  Floats total = Zeros();
  for (int64_t j = 0; j < keys; j += kLanes) {
    const Floats p = Exp(Load(row + j) - subtracted);
    total = total + p;
    Store(row + j, p);
  }
  running->sum += Sum(total);
}

void ForwardBlock(const ForwardTask& task) {
  const AttentionForward& op = *task.op;
  const AttentionShape& shape = *task.shape;
  const TokenRange& queries = task.queries;
  const int64_t of_head = task.head * shape.head_dim;
  const KeyHead v = {op.v + task.head / shape.group() * shape.head_dim, shape.v_pitch};
  const ForwardWork work(shape, task.memory);
  Running running[kBlock];

  WidenRows(shape, op.q + queries.start * shape.q_pitch + of_head, shape.q_pitch, queries.count(),
            work.q);
  std::fill(work.sums, work.sums + queries.count() * shape.padded_dim, 0.0f);
  for (KeyTile tile = FirstTile(shape, queries); tile.from < tile.end;
       tile = NextTile(shape, queries, tile)) {
    WidenTile(shape, v, tile, work.v_rows);
    DotAll(shape, queries.count(), tile, work.q, task.k_panels, work.scores);
    for (int64_t i = 0; i < queries.count(); ++i) {
      float* const row = work.scores + i * tile.keys;
      ScaleAndMask(shape, tile, queries.start + i, row);
      Exponentiate(shape, tile.keys, row, work.sums + i * shape.padded_dim, &running[i]);
    }
    SumOverKeys(shape, queries.count(), tile, work.scores, work.v_rows, work.sums);
  }
  for (int64_t i = 0; i < queries.count(); ++i) {
    StoreRow(shape, work.sums + i * shape.padded_dim, 1.0f / running[i].sum,
             op.out + (queries.start + i) * shape.out_pitch + of_head);
    if (op.log_sum_exp != nullptr) {
      op.log_sum_exp[task.head * shape.q_tokens + queries.start + i] =
          running[i].largest + std::log(running[i].sum);
    }
  }
}

void PackForward(const AttentionShape& shape, const KeyHead& head, int64_t index, float* panels) {
  PackPanel(shape, head, index, panels);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(ForwardBlock);
HWY_EXPORT(PackForward);

std::vector<TokenRange> BlocksOf(const AttentionShape& shape) {
  std::vector<TokenRange> blocks;
  for (const TokenRange& segment : SegmentsOf(shape))
    for (int64_t i = 0; i < BlockCount(segment); ++i) blocks.push_back(BlockOf(segment, i));
  return blocks;
}

}  // namespace

absl::Status RunAttention(const AttentionForward& operation, Scratch* scratch) {
  const AttentionShape shape(operation);
  RETURN_IF_ERROR(CheckSpans("AttentionForward", shape));
  ASSIGN_OR_RETURN(float* const k_panels,
                   scratch->Get<float>(shape.ForwardFloats(omp_get_max_threads())));
  float* const thread_memory = k_panels + shape.kv_heads * shape.head_floats();
  const std::vector<TokenRange> blocks = BlocksOf(shape);
  const auto block_count = static_cast<int64_t>(blocks.size());
  const int64_t panels = shape.padded_tokens / kPanel;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < shape.kv_heads * panels; ++i) {
      const int64_t head = i / panels;
      HWY_DYNAMIC_DISPATCH(PackForward)
      (shape, {operation.k + head * shape.head_dim, shape.k_pitch}, i % panels,
       k_panels + head * shape.head_floats());
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < shape.heads * block_count; ++i) {
      const int64_t head = i / block_count;
      HWY_DYNAMIC_DISPATCH(ForwardBlock)
      ({.op = &operation,
        .shape = &shape,
        .k_panels = k_panels + head / shape.group() * shape.head_floats(),
        .memory = thread_memory + omp_get_thread_num() * shape.ForwardWorkFloats(),
        .head = head,
        .queries = blocks[static_cast<size_t>(i % block_count)]});
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
