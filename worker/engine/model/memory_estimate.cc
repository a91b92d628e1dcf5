// N tokens of a micro-batch, D hidden, Q and K columns of queries and of keys, I intermediate, V
// vocabulary. Counts what Transformer::Create and Parameters::Create allocate; a test compares the
// two.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
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

LinearForms Union(std::initializer_list<LinearForms> all) {
  LinearForms forms;
  for (const LinearForms& one : all) {
    forms.bf16_input |= one.bf16_input;
    forms.fp8_input |= one.fp8_input;
  }
  return forms;
}

// Linear layers of a layer of the model, in the order of its parameters.
enum LayerLinear { kQ, kK, kV, kO, kGate, kUp, kDown, kLayerLinears };
using LayerForms = std::array<LinearForms, kLayerLinears>;

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

class Estimator {
 public:
  Estimator(const ModelShape& model, const RunShape& run, const std::string& backend)
      : model_(model), run_(run), backend_(backend), tokens_(run.micro_batch * run.sequence) {}

  MemoryEstimate Sum() const {
    const int64_t elements = CountParameters(model_).elements;
    MemoryEstimate estimate;
    estimate.weights = Weights();
    estimate.optimizer = 3 * kFloat * elements;
    estimate.gradients = kFloat * elements;
    estimate.activations = model_.layers * LayerActivations() + KeptInputs() +
                           tokens_ * (kBfloat16 * model_.hidden + kFloat);
    estimate.workspaces = Workspaces() + StepRecords();
    estimate.program = kProgramBytes;
    return estimate;
  }

 private:
  // Each backend lays quantised matrices out in its own way.
  int64_t QuantizedBytes(Tile tile, int64_t rows, int64_t columns) const {
    return kernels::QuantizedBytes(
        backend_, {.rows = rows, .columns = columns, .tile = tile, .role = kernels::Role::kB});
  }
  int64_t TilesBytes(int64_t rows, int64_t columns) const {
    return QuantizedBytes(Tile::k1x128, rows, columns);
  }
  int64_t BlocksBytes(int64_t rows, int64_t columns) const {
    return QuantizedBytes(Tile::k128x128, rows, columns);
  }

  int64_t WeightBytes(const LinearForms& forms, int64_t rows, int64_t columns) const {
    return (forms.bf16_weight ? kBfloat16 * rows * columns : 0) +
           (forms.fp8_weight ? BlocksBytes(rows, columns) : 0) +
           (forms.fp8_transposed_weight ? BlocksBytes(columns, rows) : 0);
  }

  // Of an input that layers with these forms share.
  int64_t InputBytes(const LinearForms& forms, int64_t columns, int64_t tokens) const {
    return (forms.bf16_input ? kBfloat16 * tokens * columns : 0) +
           (forms.fp8_input ? TilesBytes(columns, tokens) : 0);
  }

  int64_t LinearParameters() const {
    return model_.layers * (2 * model_.hidden * (model_.q_columns() + model_.kv_columns()) +
                            3 * model_.hidden * model_.intermediate);
  }

  // Of layer `layer`, or of every layer where none differs.
  LayerForms FormsOfLayer(int64_t layer) const {
    LayerForms forms;
    if (run_.linears.empty()) {
      LinearForms plain;
      plain.Include(run_.fp8 ? kFp8Policy : LinearPolicy());
      forms.fill(plain);
    } else {
      std::copy_n(run_.linears.begin() + layer * kLayerLinears, kLayerLinears, forms.begin());
    }
    return forms;
  }

  // The sum over all layers of what `bytes` says of one; costs one call where none differs.
  template <typename Bytes>
  int64_t SumOverLayers(const Bytes& bytes) const {
    if (run_.linears.empty()) return model_.layers * bytes(FormsOfLayer(0));
    int64_t sum = 0;
    for (int64_t layer = 0; layer < model_.layers; ++layer) sum += bytes(FormsOfLayer(layer));
    return sum;
  }

  int64_t Weights() const {
    const int64_t D = model_.hidden, Q = model_.q_columns(), K = model_.kv_columns();
    const int64_t I = model_.intermediate, V = model_.vocabulary;
    const int64_t other = CountParameters(model_).parameter_count - LinearParameters() -
                          V * D * (model_.tied ? 1 : 2);  // norms and biases
    const int64_t linears = SumOverLayers([&](const LayerForms& forms) {
      return WeightBytes(forms[kQ], Q, D) + WeightBytes(forms[kK], K, D) +
             WeightBytes(forms[kV], K, D) + WeightBytes(forms[kO], D, Q) +
             WeightBytes(forms[kGate], I, D) + WeightBytes(forms[kUp], I, D) +
             WeightBytes(forms[kDown], D, I);
    });
    return linears + kBfloat16 * (V * D * (model_.tied ? 1 : 2) + other);
  }

  // The inputs of the linear layers from forward to backward: FP8 codes of their transpose, BF16,
  // or both. o_proj's is attention's result.
  int64_t KeptInputs() const {
    const int64_t D = model_.hidden, I = model_.intermediate, N = tokens_;
    return SumOverLayers([&](const LayerForms& forms) {
      return InputBytes(Union({forms[kQ], forms[kK], forms[kV]}), D, N) +
             InputBytes(Union({forms[kGate], forms[kUp]}), D, N) + InputBytes(forms[kDown], I, N);
    });
  }

  // Kept from forward to backward: the residual stream at both norms, queries, keys, values,
  // attention's result, gate and up in BF16.
  int64_t LayerActivations() const {
    const int64_t D = model_.hidden, Q = model_.q_columns(), K = model_.kv_columns();
    const int64_t I = model_.intermediate, N = tokens_;
    int64_t bytes =
        kBfloat16 * N * (2 * D + 2 * Q + 2 * K + 2 * I) + kFloat * N * (2 + model_.heads);
    if (model_.qk_norm) {
      bytes += kBfloat16 * N * (Q + K) + kFloat * N * (model_.heads + model_.kv_heads);
    }
    return bytes;
  }

  int64_t Workspaces() const {
    const int64_t D = model_.hidden, Q = model_.q_columns(), K = model_.kv_columns();
    const int64_t I = model_.intermediate, V = model_.vocabulary, N = tokens_;
    const int64_t widest = std::max({D, Q, I});
    int64_t bytes = kBfloat16 * N * (2 * D + I + 2 * Q + 2 * K) + kFloat * N * D +
                    kBfloat16 * HeadRows(N, V) * V + kFloat * N +
                    kFloat * 4 * 2 * 2 * BatchPitch(N) + kFloat * N * model_.head_dim;
    if (run_.fp8) {
      bytes += TilesBytes(N, widest) + TilesBytes(widest, N) + TilesBytes(N, I) + TilesBytes(I, N) +
               TilesBytes(Q, N) + kBfloat16 * D * std::max({Q, K, I}) +
               kernels::QuantizedBytes(backend_, LargestWeightSpec(model_));
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
  const std::string& backend_;  // OpenBackend's name
  const int64_t tokens_;
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

MemoryEstimate EstimateMemory(const ModelShape& model, const RunShape& run, const Place& place) {
  MemoryEstimate estimate = Estimator(model, run, place.backend).Sum();
  estimate.backend =
      kernels::WorkspaceBytes(place.backend, LargestOperationsOf(model, run), place.machine);
  return estimate;
}

std::string Describe(const MemoryEstimate& estimate) {
  return absl::StrCat("weights ", estimate.weights, ", optimizer ", estimate.optimizer,
                      ", gradients ", estimate.gradients, ", activations ", estimate.activations,
                      ", workspaces ", estimate.workspaces, ", the backend's own ",
                      estimate.backend, ", corpus ", estimate.corpus, ", program ",
                      estimate.program);
}

}  // namespace octavo::engine
