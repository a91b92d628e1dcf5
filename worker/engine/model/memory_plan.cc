// N tokens of a micro-batch, D hidden, Q and K columns of queries and of keys, I intermediate, V
// vocabulary. Counts what Transformer::Create and Parameters::Create allocate; a test compares the
// two.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/step.h"
#include "kernels/quantized_bytes.h"
#include "kernels/workspace_bytes.h"
#include "worker/engine/model/shape.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {
namespace {

using kernels::Tile;

constexpr int64_t kFloat = 4;
constexpr int64_t kBfloat16 = 2;

// Code, libraries, their thread pools, generated kernels and packed operands: 41 MB measured around
// SmolLM2-135M with two threads, and what a trainer's connections and tokenizer add.
constexpr int64_t kProgramBytes = 96 << 20;

int64_t QuantizedBytes(Tile tile, int64_t rows, int64_t columns) {
  return kernels::QuantizedBytes(
      "cpu", {.rows = rows, .columns = columns, .tile = tile, .role = kernels::Role::kB});
}

int64_t TilesBytes(int64_t rows, int64_t columns) {
  return QuantizedBytes(Tile::k1x128, rows, columns);
}

int64_t Fp8WeightBytes(int64_t rows, int64_t columns) {
  return QuantizedBytes(Tile::k128x128, rows, columns) +
         QuantizedBytes(Tile::k128x128, columns, rows);  // the transposed copy
}

// The three products of a linear layer over N tokens, W [outputs, inputs].
kernels::LargestProducts ProductsOf(int64_t N, int64_t outputs, int64_t inputs) {
  kernels::LargestProducts products;
  products.Include(
      {.a = N * inputs, .b = outputs * inputs, .bfloat16_c = N * outputs, .n = outputs});
  products.Include(
      {.a = N * outputs, .b = outputs * inputs, .bfloat16_c = N * inputs, .n = inputs});
  products.Include({.a = outputs * N, .b = inputs * N, .bfloat16_c = 0, .n = inputs});
  return products;
}

// Blends the bytes of linears in FP8 with those kept in BF16 by their share of parameters: which
// ones is not known here.
class Plan {
 public:
  Plan(const ModelShape& model, const RunShape& run)
      : model_(model), run_(run), tokens_(run.micro_batch * run.sequence) {
    const int64_t linear = LinearParameters();
    bf16_share_ = !run.fp8      ? 1.0
                  : linear == 0 ? 0.0
                                : std::min(1.0, static_cast<double>(run.bf16_linear_parameters) /
                                                    static_cast<double>(linear));
  }

  MemoryPlan Sum() const {
    const int64_t elements = CountParameters(model_).elements;
    MemoryPlan plan;
    plan.weights = Weights();
    plan.optimizer = 3 * kFloat * elements;
    plan.gradients = kFloat * elements;
    plan.activations =
        model_.layers * LayerActivations() + tokens_ * (kBfloat16 * model_.hidden + kFloat);
    plan.workspaces = Workspaces() + StepRecords();
    plan.program = kProgramBytes;
    return plan;
  }

 private:
  int64_t LinearParameters() const {
    return model_.layers * (2 * model_.hidden * (model_.q_columns() + model_.kv_columns()) +
                            3 * model_.hidden * model_.intermediate);
  }

  int64_t Blend(int64_t fp8_bytes, int64_t bf16_bytes) const {
    return static_cast<int64_t>((1 - bf16_share_) * static_cast<double>(fp8_bytes) +
                                bf16_share_ * static_cast<double>(bf16_bytes));
  }

  int64_t Weights() const {
    const int64_t D = model_.hidden, Q = model_.q_columns(), K = model_.kv_columns();
    const int64_t I = model_.intermediate, V = model_.vocabulary;
    const int64_t layer_fp8 =
        2 * Fp8WeightBytes(Q, D) + 2 * Fp8WeightBytes(K, D) + 3 * Fp8WeightBytes(I, D);
    const int64_t other = CountParameters(model_).parameter_count - LinearParameters() -
                          V * D * (model_.tied ? 1 : 2);  // norms and biases
    return Blend(model_.layers * layer_fp8, kBfloat16 * LinearParameters()) +
           kBfloat16 * (V * D * (model_.tied ? 1 : 2) + other);
  }

  // Kept from forward to backward: the residual stream at both norms, queries, keys, values,
  // attention's result, gate and up in BF16, and the inputs of the linears: FP8 codes of their
  // transpose, or BF16.
  int64_t LayerActivations() const {
    const int64_t D = model_.hidden, Q = model_.q_columns(), K = model_.kv_columns();
    const int64_t I = model_.intermediate, N = tokens_;
    int64_t bytes =
        kBfloat16 * N * (2 * D + 2 * Q + 2 * K + 2 * I) + kFloat * N * (2 + model_.heads);
    if (model_.qk_norm) {
      bytes += kBfloat16 * N * (Q + K) + kFloat * N * (model_.heads + model_.kv_heads);
    }
    const int64_t inputs_fp8 = 2 * TilesBytes(D, N) + TilesBytes(I, N);
    return bytes + Blend(inputs_fp8, kBfloat16 * N * (2 * D + I));
  }

  int64_t Workspaces() const {
    const int64_t D = model_.hidden, Q = model_.q_columns(), K = model_.kv_columns();
    const int64_t I = model_.intermediate, V = model_.vocabulary, N = tokens_;
    const int64_t widest = std::max({D, Q, I});
    int64_t bytes = kBfloat16 * N * (2 * D + I + 2 * Q + 2 * K) + kFloat * N * D +
                    kBfloat16 * HeadRows(N, V) * V + kFloat * N +
                    kFloat * 4 * 2 * 2 * BatchPitch(N) + kFloat * N * model_.head_dim;
    if (run_.fp8) {
      bytes += TilesBytes(N, widest) + TilesBytes(widest, N) + TilesBytes(Q, N) +
               kBfloat16 * D * std::max({Q, K, I});
    }
    return bytes;
  }

  // Of the training step and of an evaluation: a state and, of each module, four counters.
  int64_t StepRecords() const {
    const int64_t modules = 2 + (model_.tied ? 0 : 1) + model_.layers * (model_.qk_norm ? 11 : 9);
    return 2 *
           (static_cast<int64_t>(sizeof(kernels::StepState)) + kStepInputBytes + 4 * 8 * modules);
  }

  const ModelShape& model_;
  const RunShape& run_;
  const int64_t tokens_;
  double bf16_share_ = 0;
};

}  // namespace

kernels::LargestOperations LargestOperationsOf(const ModelShape& model, const RunShape& run) {
  const int64_t D = model.hidden, Q = model.q_columns(), K = model.kv_columns();
  const int64_t I = model.intermediate, V = model.vocabulary, N = run.micro_batch * run.sequence;
  kernels::LargestOperations largest = {.fp8 = {},
                                        .bf16 = ProductsOf(HeadRows(N, V), V, D),
                                        .tokens = N,
                                        .heads = model.heads,
                                        .kv_heads = model.kv_heads,
                                        .head_dim = model.head_dim,
                                        .backward = run.for_training};
  kernels::LargestProducts linears;
  for (const auto& [outputs, inputs] :
       {std::pair(Q, D), std::pair(K, D), std::pair(D, Q), std::pair(I, D), std::pair(D, I)}) {
    linears.Include(ProductsOf(N, outputs, inputs));
  }
  if (run.fp8) largest.fp8 = linears;
  largest.bf16.Include(linears);
  return largest;
}

MemoryPlan PlanMemory(const ModelShape& model, const RunShape& run, const Place& place) {
  MemoryPlan plan = Plan(model, run).Sum();
  plan.backend =
      kernels::WorkspaceBytes(place.backend, LargestOperationsOf(model, run), place.machine);
  return plan;
}

std::string Describe(const MemoryPlan& plan) {
  return absl::StrCat("weights ", plan.weights, ", optimizer ", plan.optimizer, ", gradients ",
                      plan.gradients, ", activations ", plan.activations, ", workspaces ",
                      plan.workspaces, ", the backend's own ", plan.backend, ", corpus ",
                      plan.corpus, ", program ", plan.program);
}

}  // namespace octavo::engine
