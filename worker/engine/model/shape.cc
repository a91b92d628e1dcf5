#include "worker/engine/model/shape.h"

#include "absl/strings/str_cat.h"

namespace octavo::engine {
namespace {

// 64 float32 are 256 bytes: every parameter starts as aligned as a backend's own allocation.
constexpr int64_t kAlignment = 64;

class LayoutBuilder {
 public:
  void Add(const std::string& module, const char* part, ParameterKind kind, int64_t rows,
           int64_t columns) {
    if (layout_.parameters.empty() || layout_.parameters.back().module != module) ++modules_;
    layout_.parameters.push_back({.name = absl::StrCat(module, ".", part),
                                  .module = module,
                                  .kind = kind,
                                  .rows = rows,
                                  .columns = columns,
                                  .offset = layout_.elements,
                                  .module_index = modules_ - 1});
    const int64_t count = rows * columns;
    layout_.parameter_count += count;
    layout_.elements += (count + kAlignment - 1) / kAlignment * kAlignment;
  }

  void AddLinear(const std::string& module, int64_t rows, int64_t columns, bool bias = false) {
    Add(module, "weight", ParameterKind::kLinear, rows, columns);
    if (bias) Add(module, "bias", ParameterKind::kBias, 1, rows);
  }

  void AddNorm(const std::string& module, int64_t columns) {
    Add(module, "weight", ParameterKind::kNorm, 1, columns);
  }

  void AddLayer(const std::string& layer, const ModelShape& shape) {
    const std::string attention = layer + ".self_attn";
    AddNorm(layer + ".input_layernorm", shape.hidden);
    AddLinear(attention + ".q_proj", shape.q_columns(), shape.hidden, shape.qkv_bias);
    AddLinear(attention + ".k_proj", shape.kv_columns(), shape.hidden, shape.qkv_bias);
    AddLinear(attention + ".v_proj", shape.kv_columns(), shape.hidden, shape.qkv_bias);
    if (shape.qk_norm) {
      AddNorm(attention + ".q_norm", shape.head_dim);
      AddNorm(attention + ".k_norm", shape.head_dim);
    }
    AddLinear(attention + ".o_proj", shape.hidden, shape.q_columns());
    AddNorm(layer + ".post_attention_layernorm", shape.hidden);
    AddLinear(layer + ".mlp.gate_proj", shape.intermediate, shape.hidden);
    AddLinear(layer + ".mlp.up_proj", shape.intermediate, shape.hidden);
    AddLinear(layer + ".mlp.down_proj", shape.hidden, shape.intermediate);
  }

  ParameterLayout Build() { return std::move(layout_); }

 private:
  ParameterLayout layout_;
  int64_t modules_ = 0;  // so far; a module's parameters follow each other
};

}  // namespace

ParameterLayout LayOutParameters(const ModelShape& shape) {
  LayoutBuilder builder;
  builder.Add("model.embed_tokens", "weight", ParameterKind::kEmbedding, shape.vocabulary,
              shape.hidden);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    builder.AddLayer(absl::StrCat("model.layers.", layer), shape);
  }
  builder.AddNorm("model.norm", shape.hidden);
  if (!shape.tied) {
    builder.Add("lm_head", "weight", ParameterKind::kHead, shape.vocabulary, shape.hidden);
  }
  return builder.Build();
}

// All layers are alike and every parameter starts aligned, so each layer adds the same.
ParameterTotals CountParameters(const ModelShape& shape) {
  ModelShape part = shape;
  part.layers = 0;
  const ParameterLayout without = LayOutParameters(part);
  part.layers = 1;
  const ParameterLayout with_one = LayOutParameters(part);
  return {.elements = without.elements + shape.layers * (with_one.elements - without.elements),
          .parameter_count = without.parameter_count +
                             shape.layers * (with_one.parameter_count - without.parameter_count)};
}

}  // namespace octavo::engine
