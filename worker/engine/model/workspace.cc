#include "worker/engine/model/workspace.h"

#include <algorithm>

#include "base/status.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Buffer;

absl::StatusOr<Workspace> Workspace::Create(const ModelShape& shape, const Options& options,
                                            kernels::Backend* backend) {
  const int64_t N = options.max_tokens, D = shape.hidden, I = shape.intermediate;
  const int64_t Q = shape.q_columns(), K = shape.kv_columns();
  const int64_t widest = std::max({D, Q, I});
  const int64_t logits = HeadRows(N, shape.vocabulary) * shape.vocabulary;
  Workspace workspace;
  ASSIGN_OR_RETURN(workspace.normalised, Buffer<bfloat16>::Create(backend, N * D));
  ASSIGN_OR_RETURN(workspace.activated, Buffer<bfloat16>::Create(backend, N * I));
  ASSIGN_OR_RETURN(workspace.residual_gradient, Buffer<bfloat16>::Create(backend, N * D));
  ASSIGN_OR_RETURN(workspace.logits, Buffer<bfloat16>::Create(backend, logits));
  ASSIGN_OR_RETURN(workspace.loss, Buffer<float>::Create(backend, N));
  if (options.any_fp8) {
    ASSIGN_OR_RETURN(workspace.tiles.by_rows,
                     QuantizedBuffer::Create(TileSpec(N, widest, kernels::Role::kA), backend));
    ASSIGN_OR_RETURN(workspace.weight, Buffer<bfloat16>::Create(backend, D * std::max({Q, K, I})));
    const kernels::QuantizedSpec codes = LargestWeightSpec(shape);
    ASSIGN_OR_RETURN(workspace.weight_codes, QuantizedBuffer::Create(codes, backend));
  }
  if (!options.for_training) return workspace;
  ASSIGN_OR_RETURN(workspace.input_gradient, Buffer<float>::Create(backend, N * D));
  ASSIGN_OR_RETURN(workspace.attention, Buffer<bfloat16>::Create(backend, N * Q));
  ASSIGN_OR_RETURN(workspace.query_gradient, Buffer<bfloat16>::Create(backend, N * Q));
  ASSIGN_OR_RETURN(workspace.key_gradient, Buffer<bfloat16>::Create(backend, N * K));
  ASSIGN_OR_RETURN(workspace.value_gradient, Buffer<bfloat16>::Create(backend, N * K));
  if (options.any_fp8) {
    ASSIGN_OR_RETURN(workspace.tiles.by_columns,
                     QuantizedBuffer::Create(TileSpec(widest, N, kernels::Role::kA), backend));
    ASSIGN_OR_RETURN(workspace.up_tiles.by_rows,
                     QuantizedBuffer::Create(TileSpec(N, I, kernels::Role::kA), backend));
    ASSIGN_OR_RETURN(workspace.up_tiles.by_columns,
                     QuantizedBuffer::Create(TileSpec(I, N, kernels::Role::kA), backend));
    ASSIGN_OR_RETURN(workspace.input_tiles,
                     QuantizedBuffer::Create(TileSpec(Q, N, kernels::Role::kB), backend));
  }
  return workspace;
}

}  // namespace octavo::engine
