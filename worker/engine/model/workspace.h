// Buffers that live for one operation or one block, shared by all layers, and what a pass over the
// layers knows. N tokens of the largest batch, D hidden, Q and K columns of queries and keys, I
// intermediate, V vocabulary.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/nonfinite.h"
#include "worker/engine/model/quantized_buffer.h"
#include "worker/engine/model/shape.h"
#include "worker/engine/precision/linear_policy.h"

namespace octavo::engine {

// A matrix in 1x128 tiles along its rows.
inline kernels::QuantizedSpec TileSpec(int64_t rows, int64_t columns, kernels::Role role) {
  return {.rows = rows, .columns = columns, .tile = kernels::Tile::k1x128, .role = role};
}

// A matrix in both kinds of tiles.
struct TileBuffers {
  QuantizedBuffer by_rows;
  QuantizedBuffer by_columns;
};

struct Workspace {
  struct Options {
    int64_t max_tokens;
    bool for_training;
    bool any_fp8;
  };
  static absl::StatusOr<Workspace> Create(const ModelShape& shape, const Options& options,
                                          kernels::Backend* backend);

  // Forward; backward reuses the first two for gradients of the same shape.
  kernels::Buffer<kernels::bfloat16> normalised;  // [N, D] norm's result in BF16; its gradient
  kernels::Buffer<kernels::bfloat16> activated;   // [N, I] SwiGLU's result in BF16; its gradient
  // [N, D] d(loss)/d(residual stream); without a backward, the rows whose logits are asked for.
  kernels::Buffer<kernels::bfloat16> residual_gradient;
  kernels::Buffer<kernels::bfloat16> logits;  // [HeadRows, V]
  kernels::Buffer<float> loss;                // [N]
  // [N, max(D, Q, I)] by rows the input of FProp and of DGrad, by columns, in training, the output
  // gradient of WGrad.
  TileBuffers tiles;
  // The weight of one linear layer in an evaluation that asks for a form that the step does not.
  kernels::Buffer<kernels::bfloat16> weight;
  QuantizedBuffer weight_codes;

  // Backward only.
  kernels::Buffer<float> input_gradient;              // [N, D] sums over the linears of one input
  kernels::Buffer<kernels::bfloat16> attention;       // [N, Q] d(attention's result)
  kernels::Buffer<kernels::bfloat16> query_gradient;  // [N, Q]
  kernels::Buffer<kernels::bfloat16> key_gradient;    // [N, K]
  kernels::Buffer<kernels::bfloat16> value_gradient;  // [N, K]
  TileBuffers up_tiles;         // [N, I] d(up) beside d(gate), which are made at once
  QuantizedBuffer input_tiles;  // [Q, N] o_proj's input, transposed, of WGrad
};

struct Pass {
  kernels::Backend* backend;
  Workspace* workspace;
  int64_t tokens;
  const PolicyTable* policy;  // of every linear layer
  bool train;                 // keep what backward needs
  const float* master;
  float* gradient;  // null without training
  const NonfiniteCounters* nonfinite;
  const int32_t* ids;  // this and the following: [tokens]
  const int32_t* targets;
  const int32_t* positions;
  const int32_t* attend_from;
  const float* cosine;  // rotary tables, [positions, head_dim / 2]
  const float* sine;
};

}  // namespace octavo::engine
