// Vector code that attention's forward and backward share: widened operands and scores.
#if defined(OCTAVO_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_CPU_ATTENTION_INL_H_
#undef OCTAVO_KERNELS_CPU_ATTENTION_INL_H_
#else
#define OCTAVO_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/cpu/attention_shape.h"
#include "kernels/cpu/small_gemm_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {

// `rows` rows of a head, `pitch` apart, to to[row * padded_dim + d]; padding is cleared.
HWY_INLINE void WidenRows(const AttentionShape& shape, const bfloat16* x, int64_t pitch,
                          int64_t rows, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t d = 0; d < shape.padded_dim; d += kLanes) {
      Store(to + row * shape.padded_dim + d, LoadUpTo(x + row * pitch + d, shape.head_dim - d));
    }
  }
}

// The tile's rows of one head of keys or values; those beyond the last token are cleared.
HWY_INLINE void WidenTile(const AttentionShape& shape, const KeyHead& head, const KeyTile& tile,
                          float* to) {
  const int64_t rows = std::min(tile.keys, shape.kv_tokens - tile.from);
  WidenRows(shape, head.first + tile.from * head.pitch, head.pitch, rows, to);
  std::fill(to + rows * shape.padded_dim, to + tile.keys * shape.padded_dim, 0.0f);
}

// Panel `index` of one head of K or V, transposed: to[d * kPanel + token % kPanel] of the panel,
// zero beyond the tokens.
inline void PackPanel(const AttentionShape& shape, const KeyHead& head, int64_t index,
                      float* panels) {
  const int64_t first = index * kPanel;
  const int64_t count = std::min(kPanel, shape.kv_tokens - first);
  float* const panel = panels + first * shape.padded_dim;
  for (int64_t d = 0; d < shape.padded_dim; ++d) {
    float* const line = panel + d * kPanel;
    const int64_t filled = d < shape.head_dim ? count : 0;
    for (int64_t i = 0; i < filled; ++i)
      line[i] = ToFloat(head.first[(first + i) * head.pitch + d]);
    std::fill(line + filled, line + kPanel, 0.0f);
  }
}

// result[query, key] = x[query] . y[key] over the tile: x rows of padded_dim, y panels of a head.
HWY_INLINE void DotAll(const AttentionShape& shape, int64_t queries, const KeyTile& tile,
                       const float* x, const float* y_panels, float* result) {
  Multiply<Result::kSet>({.a = x,
                          .a_row_stride = shape.padded_dim,
                          .a_k_stride = 1,
                          .b = y_panels + tile.from * shape.padded_dim,
                          .b_pitch = kPanel,
                          .b_panel_stride = kPanel * shape.padded_dim,
                          .c = result,
                          .c_pitch = tile.keys,
                          .m = queries,
                          .n = tile.keys,
                          .k = shape.head_dim});
}

// sums[query] += sum over the tile's keys of weights[query, key] * y[key]: y rows of the tile.
HWY_INLINE void SumOverKeys(const AttentionShape& shape, int64_t queries, const KeyTile& tile,
                            const float* weights, const float* y_rows, float* sums) {
  Multiply<Result::kAdd>({.a = weights,
                          .a_row_stride = tile.keys,
                          .a_k_stride = 1,
                          .b = y_rows,
                          .b_pitch = shape.padded_dim,
                          .b_panel_stride = kPanel,
                          .c = sums,
                          .c_pitch = shape.padded_dim,
                          .m = queries,
                          .n = shape.padded_dim,
                          .k = tile.end - tile.from});
}

// A query's row of q . k becomes scores: scaled, and -infinity where the query must not look.
HWY_INLINE void ScaleAndMask(const AttentionShape& shape, const KeyTile& tile, int64_t query,
                             float* row) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const Floats scale = Splat(shape.scale);
  for (int64_t j = 0; j < tile.keys; j += kLanes) Store(row + j, Load(row + j) * scale);
  const int64_t from = shape.attend_from[query] - tile.from;
  if (from > 0) std::fill(row, row + std::min(from, tile.keys), kNever);
  const int64_t beyond = shape.token(query) + 1 - tile.from;
  if (beyond < tile.keys) std::fill(row + std::max<int64_t>(beyond, 0), row + tile.keys, kNever);
}

// sums[row] * factors[row] to BF16 rows that are `pitch` apart.
HWY_INLINE void StoreRow(const AttentionShape& shape, const float* sums, float factor,
                         bfloat16* to) {
  for (int64_t d = 0; d < shape.head_dim; d += kLanes)
    StoreUpTo(to + d, Load(sums + d) * Splat(factor), shape.head_dim - d);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTAVO_KERNELS_CPU_ATTENTION_INL_H_
