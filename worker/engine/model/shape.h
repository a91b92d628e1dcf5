// Shape arithmetic: what parameters a model has and how much memory a run needs. No tensors, so
// that the coordinator can admit jobs with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/workspace.h"
#include "worker/engine/precision/linear_policy.h"

namespace octavo::engine {

struct ModelShape {
  int64_t vocabulary = 0;  // rows of the embedding
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool qkv_bias = false;
  bool qk_norm = false;  // Qwen3: RMSNorm over head_dim on q and k
  bool tied = false;     // the head is the embedding

  int64_t q_columns() const { return heads * head_dim; }
  int64_t kv_columns() const { return kv_heads * head_dim; }
};

enum class ParameterKind {
  kEmbedding,  // also the head when tied
  kHead,
  kLinear,  // eligible for FP8
  kNorm,
  kBias,
};

struct ParameterSpec {
  std::string name;    // Hugging Face's, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::string module;  // name without the last part, what RecipeSpec::keep_bf16 matches
  ParameterKind kind;
  int64_t rows;              // output features; 1 for vectors
  int64_t columns;           // input features, or the vector's length
  int64_t offset;            // first element in the flat arrays; a multiple of 64
  int64_t module_index = 0;  // of `module` among the layout's modules, in order
  bool is_matrix() const { return kind != ParameterKind::kNorm && kind != ParameterKind::kBias; }
  int64_t count() const { return rows * columns; }
};

struct ParameterLayout {
  std::vector<ParameterSpec>
      parameters;               // in the order of the model: embedding, layers, final norm, head
  int64_t elements = 0;         // of a flat array, padding included
  int64_t parameter_count = 0;  // without padding
};

ParameterLayout LayOutParameters(const ModelShape& shape);

// The totals of the layout without the layout: costs the same for any number of layers.
struct ParameterTotals {
  int64_t elements = 0;
  int64_t parameter_count = 0;
};
ParameterTotals CountParameters(const ModelShape& shape);

// What decides memory beside the model.
struct RunShape {
  int64_t micro_batch = 1;
  int64_t sequence = 0;
  bool fp8 = true;  // something of some linear layer is
  bool for_training = true;
  // Of each linear layer, in the order of the parameters. Empty: all of them are plainly FP8 or
  // BF16.
  std::vector<LinearForms> linears = {};
};

// What a run asks of its backend at most.
kernels::LargestOperations LargestOperationsOf(const ModelShape& model, const RunShape& run);

// Where the run is going to be.
struct Place {
  std::string backend = "cpu";
  kernels::Machine machine;
};

// Bytes, every buffer under one of the names.
struct MemoryEstimate {
  int64_t weights = 0;    // BF16 copies, FP8 codes and scales
  int64_t optimizer = 0;  // FP32 master and moments
  int64_t gradients = 0;
  int64_t activations = 0;  // from forward to backward
  int64_t workspaces = 0;   // of one operation or block, shared by all layers; the step's state
  int64_t backend = 0;      // that it keeps for itself
  int64_t corpus = 0;       // tokens on the host
  int64_t program = 0;      // code, libraries, tokenizer
  int64_t device() const {
    return weights + optimizer + gradients + activations + workspaces + backend;
  }
  int64_t total() const { return device() + corpus + program; }
};

// Without the corpus, which is known when it is read.
MemoryEstimate EstimateMemory(const ModelShape& model, const RunShape& run, const Place& place);

// "weights 5, optimizer 7, ..."
std::string Describe(const MemoryEstimate& estimate);

}  // namespace octavo::engine
