// The model in float64, forward and backward, in plain loops written from the formulas: the judge
// of the engine's numerics. It computes exactly, or emulates a recipe: it then rounds what the
// recipe stores in BF16 or quantises, and nothing else. N tokens, D hidden, V vocabulary; matrices
// are row-major vectors; y = x W^T. Knows nothing of kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/support/recipe.h"
#include "worker/engine/batch.h"
#include "worker/engine/model/config.h"
#include "worker/engine/precision/linear_policy.h"

namespace octavo::testing_support {

using Values = std::vector<double>;
using ValueMap = std::map<std::string, Values>;  // by Hugging Face's names

// y[n,o] = sum_i x[n,i] w[o,i] + bias[o]
inline Values Multiply(const Values& x, const Values& w, const Values* bias, int64_t inputs) {
  const int64_t rows = static_cast<int64_t>(x.size()) / inputs;
  const int64_t outputs = static_cast<int64_t>(w.size()) / inputs;
  Values y(rows * outputs);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = bias != nullptr ? (*bias)[o] : 0;
      for (int64_t i = 0; i < inputs; ++i) sum += x[n * inputs + i] * w[o * inputs + i];
      y[n * outputs + o] = sum;
    }
  }
  return y;
}

// dx += dy w;  dw += dy^T x;  dbias += column sums of dy
inline void MultiplyBackward(const Values& dy, const Values& x, const Values& w, int64_t inputs,
                             Values* dx, Values* dw, Values* dbias) {
  const int64_t rows = static_cast<int64_t>(x.size()) / inputs;
  const int64_t outputs = static_cast<int64_t>(w.size()) / inputs;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      const double g = dy[n * outputs + o];
      if (dbias != nullptr) (*dbias)[o] += g;
      for (int64_t i = 0; i < inputs; ++i) {
        (*dx)[n * inputs + i] += g * w[o * inputs + i];
        (*dw)[o * inputs + i] += g * x[n * inputs + i];
      }
    }
  }
}

// y = x / sqrt(mean(x^2) + epsilon) * w over rows as long as w
inline Values Normalise(const Values& x, const Values& w, double epsilon) {
  const int64_t columns = static_cast<int64_t>(w.size());
  Values y(x.size());
  for (size_t row = 0; row < x.size(); row += columns) {
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c) squares += x[row + c] * x[row + c];
    const double r = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    for (int64_t c = 0; c < columns; ++c) y[row + c] = x[row + c] * r * w[c];
  }
  return y;
}

// dx += r (g - x r^2 mean(g x)) with g = dy w;  dw += sum over rows of dy x r
inline void NormaliseBackward(const Values& dy, const Values& x, const Values& w, double epsilon,
                              Values* dx, Values* dw) {
  const int64_t columns = static_cast<int64_t>(w.size());
  for (size_t row = 0; row < x.size(); row += columns) {
    double squares = 0, product = 0;
    for (int64_t c = 0; c < columns; ++c) {
      squares += x[row + c] * x[row + c];
      product += dy[row + c] * w[c] * x[row + c];
    }
    const double r = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    const double mean = product / static_cast<double>(columns);
    for (int64_t c = 0; c < columns; ++c) {
      (*dx)[row + c] += r * (dy[row + c] * w[c] - x[row + c] * r * r * mean);
      (*dw)[c] += dy[row + c] * x[row + c] * r;
    }
  }
}

class ReferenceModel {
 public:
  enum class Arithmetic { kExact, kBf16, kFp8 };

  ReferenceModel(octavo::engine::ModelConfig config, ValueMap weights,
                 Arithmetic arithmetic = Arithmetic::kExact,
                 octavo::engine::LinearPolicy policy = octavo::engine::kFp8Policy)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        arithmetic_(arithmetic),
        policy_(policy) {}

  ValueMap& weights() { return weights_; }
  const Values& logits() const { return logits_; }
  const ValueMap& gradients() const { return gradients_; }

  // Sum of the losses of target tokens; fills logits().
  double Forward(const octavo::engine::Batch& batch) {
    batch_ = batch;
    layers_.assign(config_.shape.layers, {});
    const int64_t D = config_.shape.hidden;
    Values x(batch.tokens() * D);
    const Values& table = weights_.at("model.embed_tokens.weight");
    for (int64_t n = 0; n < batch.tokens(); ++n) {
      std::copy_n(&table[batch.ids[n] * D], D, &x[n * D]);
    }
    for (int64_t i = 0; i < config_.shape.layers; ++i) {
      ForwardAttention(i, &x);
      ForwardMlp(i, &x);
    }
    last_ = x;
    normalised_ = Norm(x, weights_.at("model.norm.weight"));
    logits_ = Multiply(normalised_, weights_.at(HeadName()), nullptr, D);
    Store(&logits_);
    return SumLoss();
  }

  // After Forward: gradients() of gradient_scale * the sum.
  void Backward(double gradient_scale) {
    const int64_t D = config_.shape.hidden;
    gradients_.clear();
    for (const auto& [name, weight] : weights_) gradients_[name].assign(weight.size(), 0);
    Values dnormalised(normalised_.size()), dx(last_.size());
    Values dlogits = LogitsGradient(gradient_scale);
    Store(&dlogits);
    MultiplyBackward(dlogits, normalised_, weights_.at(HeadName()), D, &dnormalised,
                     &gradients_[HeadName()], nullptr);
    NormBackward(&dnormalised, last_, "model.norm.weight", &dx);
    for (int64_t i = config_.shape.layers; i-- > 0;) {
      BackwardMlp(i, &dx);
      BackwardAttention(i, &dx);
    }
    Values& table = gradients_["model.embed_tokens.weight"];
    for (int64_t n = 0; n < batch_.tokens(); ++n) {
      for (int64_t c = 0; c < D; ++c) table[batch_.ids[n] * D + c] += dx[n * D + c];
    }
  }

 private:
  struct Layer {
    Values x, h, q_raw, k_raw, q, k, v, attended;  // attention
    Values y, g, gate, up, activated;              // MLP
  };

  std::string HeadName() const {
    return config_.shape.tied ? "model.embed_tokens.weight" : "lm_head.weight";
  }
  static std::string Name(int64_t layer, const std::string& rest) {
    return "model.layers." + std::to_string(layer) + "." + rest;
  }
  const Values& W(int64_t layer, const std::string& rest) const {
    return weights_.at(Name(layer, rest));
  }
  Values& G(int64_t layer, const std::string& rest) { return gradients_.at(Name(layer, rest)); }
  const Values* Bias(int64_t layer, const std::string& module) const {
    const auto found = weights_.find(Name(layer, module + ".bias"));
    return found == weights_.end() ? nullptr : &found->second;
  }

  // What the recipes keep in BF16.
  void Store(Values* values) const {
    if (arithmetic_ != Arithmetic::kExact) StoreInBfloat16(values);
  }
  // Whether the emulation runs this GEMM of the linear layers in FP8.
  bool IsFp8(octavo::engine::GemmPrecision precision) const {
    return arithmetic_ == Arithmetic::kFp8 && precision == octavo::engine::GemmPrecision::kFp8;
  }
  static Values Tiles(const Values& x, int64_t columns, Format format = kE4m3Format) {
    return Quantized(x, columns, 1, 128, format);
  }
  static Values TilesOfTokens(const Values& x, int64_t columns, Format format = kE4m3Format) {
    return Quantized(x, columns, 128, 1, format);
  }
  static Values Blocks(const Values& w, int64_t columns) {
    return Quantized(w, columns, 128, 128, kE4m3Format);
  }

  Values Linear(const Values& x, const Values& w, const Values* bias, int64_t inputs) const {
    Values y = Product(x, w, bias, inputs);
    Store(&y);
    return y;
  }
  // Adds the layer's result to the residual stream, which alone is stored.
  void AddLinear(const Values& x, const Values& w, int64_t inputs, Values* residual) const {
    const Values y = Product(x, w, nullptr, inputs);
    for (size_t e = 0; e < y.size(); ++e) (*residual)[e] += y[e];
    Store(residual);
  }
  Values Product(const Values& x, const Values& w, const Values* bias, int64_t inputs) const {
    return IsFp8(policy_.fprop) ? Multiply(Tiles(x, inputs), Blocks(w, inputs), bias, inputs)
                                : Multiply(x, w, bias, inputs);
  }
  // As MultiplyBackward; the caller stores dx when it is complete.
  void LinearBackward(const Values& dy, const Values& x, const Values& w, int64_t inputs,
                      Values* dx, Values* dw, Values* dbias) const {
    const int64_t outputs = static_cast<int64_t>(w.size()) / inputs;
    const Format format =
        policy_.gradient == octavo::kernels::Element::kE5M2 ? kE5m2Format : kE4m3Format;
    Values no_dw(w.size()), no_dx(x.size());
    if (IsFp8(policy_.dgrad)) {
      MultiplyBackward(Tiles(dy, outputs, format), x, Blocks(w, inputs), inputs, dx, &no_dw,
                       nullptr);
    } else {
      MultiplyBackward(dy, x, w, inputs, dx, &no_dw, nullptr);
    }
    if (IsFp8(policy_.wgrad)) {
      MultiplyBackward(TilesOfTokens(dy, outputs, format), TilesOfTokens(x, inputs), w, inputs,
                       &no_dx, dw, nullptr);
    } else {
      MultiplyBackward(dy, x, w, inputs, &no_dx, dw, nullptr);
    }
    if (dbias == nullptr) return;
    for (size_t e = 0; e < dy.size(); ++e) (*dbias)[e % outputs] += dy[e];
  }
  // The normalised value is stored before the weight is applied.
  Values Norm(const Values& x, const Values& w) const {
    Values y = Normalise(x, Values(w.size(), 1), config_.rms_norm_epsilon);
    Store(&y);
    for (size_t e = 0; e < y.size(); ++e) y[e] *= w[e % w.size()];
    Store(&y);
    return y;
  }
  // Stores dy, which is complete, and adds to dx.
  void NormBackward(Values* dy, const Values& x, const std::string& weight, Values* dx) {
    Store(dy);
    NormaliseBackward(*dy, x, weights_.at(weight), config_.rms_norm_epsilon, dx,
                      &gradients_.at(weight));
    Store(dx);
  }

  double SumLoss() const {
    const int64_t V = config_.shape.vocabulary;
    double sum = 0;
    for (int64_t n = 0; n < batch_.tokens(); ++n) {
      if (batch_.targets[n] < 0) continue;
      sum += LogSumExp(&logits_[n * V]) - logits_[n * V + batch_.targets[n]];
    }
    return sum;
  }
  double LogSumExp(const double* row) const {
    const int64_t V = config_.shape.vocabulary;
    const double top = *std::max_element(row, row + V);
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(row[v] - top);
    return top + std::log(sum);
  }
  Values LogitsGradient(double scale) const {
    const int64_t V = config_.shape.vocabulary;
    Values d(logits_.size());
    for (int64_t n = 0; n < batch_.tokens(); ++n) {
      if (batch_.targets[n] < 0) continue;
      const double log_sum = LogSumExp(&logits_[n * V]);
      for (int64_t v = 0; v < V; ++v) {
        d[n * V + v] =
            scale * (std::exp(logits_[n * V + v] - log_sum) - (v == batch_.targets[n] ? 1 : 0));
      }
    }
    return d;
  }

  // Turn of pair j per position. Llama 3: by the wavelength w. YaRN: pairs between `first` and
  // `last`, which make beta_fast and beta_slow turns within the original positions, go over from f
  // to f / factor.
  double Frequency(int64_t j) const {
    using Scaling = octavo::engine::RopeConfig::Scaling;
    const octavo::engine::RopeConfig& rope = config_.rope;
    const double d = static_cast<double>(config_.shape.head_dim);
    const double original = static_cast<double>(rope.original_max_positions);
    const double f = 1 / std::pow(rope.theta, 2.0 * static_cast<double>(j) / d);
    const double w = 2 * M_PI / f;
    if (rope.scaling == Scaling::kNone) return f;
    if (rope.scaling == Scaling::kYarn) {
      const auto pair = [&](double turns) {
        return d / 2 * std::log(original / (2 * M_PI * turns)) / std::log(rope.theta);
      };
      const double first = std::max(0.0, std::floor(pair(rope.beta_fast)));
      const double last = std::min(d - 1, std::ceil(pair(rope.beta_slow)));
      const double share = (static_cast<double>(j) - first) / (last - first);
      if (share <= 0) return f;
      return share >= 1 ? f / rope.factor : f / rope.factor * share + f * (1 - share);
    }
    if (w < original / rope.high_frequency_factor) return f;
    if (w > original / rope.low_frequency_factor) return f / rope.factor;
    const double smooth = (original / w - rope.low_frequency_factor) /
                          (rope.high_frequency_factor - rope.low_frequency_factor);
    return (1 - smooth) * f / rope.factor + smooth * f;
  }
  // sign = -1 is the transpose, i.e. the backward.
  void Rotate(Values* x, int64_t heads, double sign) const {
    const int64_t half = config_.shape.head_dim / 2;
    for (int64_t n = 0; n < batch_.tokens(); ++n) {
      for (int64_t h = 0; h < heads; ++h) {
        double* head = &(*x)[(n * heads + h) * 2 * half];
        for (int64_t j = 0; j < half; ++j) {
          const double angle = batch_.positions[n] * Frequency(j);
          Values turn = {config_.rope.attention_factor * std::cos(angle),
                         config_.rope.attention_factor * sign * std::sin(angle)};
          Store(&turn);
          const double c = turn[0], s = turn[1];
          const double a = head[j], b = head[j + half];
          head[j] = a * c - b * s;
          head[j + half] = b * c + a * s;
        }
      }
    }
    Store(x);
  }

  int64_t AttendFrom(int64_t n) const {
    const int64_t from = batch_.attend_from[n];
    return config_.sliding_window > 0 ? std::max(from, n - config_.sliding_window + 1) : from;
  }
  // p[j - from] = softmax_j(q_n . k_j / sqrt(head_dim))
  Values Probabilities(const Layer& layer, int64_t n, int64_t h) const {
    const octavo::engine::ModelShape& s = config_.shape;
    const int64_t from = AttendFrom(n), group = h / (s.heads / s.kv_heads);
    Values p(n - from + 1);
    for (int64_t j = from; j <= n; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < s.head_dim; ++c) {
        dot += layer.q[(n * s.heads + h) * s.head_dim + c] *
               layer.k[(j * s.kv_heads + group) * s.head_dim + c];
      }
      p[j - from] = dot / std::sqrt(static_cast<double>(s.head_dim));
    }
    const double top = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value - top);
    for (double& value : p) value /= sum;
    return p;
  }

  void ForwardAttention(int64_t i, Values* x) {
    const octavo::engine::ModelShape& s = config_.shape;
    Layer& layer = layers_[i];
    layer.x = *x;
    layer.h = Norm(*x, W(i, "input_layernorm.weight"));
    const auto project = [&](const std::string& module) {
      return Linear(layer.h, W(i, module + ".weight"), Bias(i, module), s.hidden);
    };
    layer.q_raw = project("self_attn.q_proj");
    layer.k_raw = project("self_attn.k_proj");
    layer.v = project("self_attn.v_proj");
    layer.q = layer.q_raw;
    layer.k = layer.k_raw;
    if (s.qk_norm) {
      layer.q = Norm(layer.q_raw, W(i, "self_attn.q_norm.weight"));
      layer.k = Norm(layer.k_raw, W(i, "self_attn.k_norm.weight"));
    }
    Rotate(&layer.q, s.heads, 1);
    Rotate(&layer.k, s.kv_heads, 1);
    layer.attended.assign(batch_.tokens() * s.q_columns(), 0);
    for (int64_t n = 0; n < batch_.tokens(); ++n) {
      for (int64_t h = 0; h < s.heads; ++h) {
        const Values p = Probabilities(layer, n, h);
        const int64_t from = AttendFrom(n), group = h / (s.heads / s.kv_heads);
        for (int64_t j = from; j <= n; ++j) {
          for (int64_t c = 0; c < s.head_dim; ++c) {
            layer.attended[(n * s.heads + h) * s.head_dim + c] +=
                p[j - from] * layer.v[(j * s.kv_heads + group) * s.head_dim + c];
          }
        }
      }
    }
    Store(&layer.attended);
    AddLinear(layer.attended, W(i, "self_attn.o_proj.weight"), s.q_columns(), x);
  }

  void BackwardAttention(int64_t i, Values* dx) {
    const octavo::engine::ModelShape& s = config_.shape;
    const Layer& layer = layers_[i];
    Values dattended(layer.attended.size());
    LinearBackward(*dx, layer.attended, W(i, "self_attn.o_proj.weight"), s.q_columns(), &dattended,
                   &G(i, "self_attn.o_proj.weight"), nullptr);
    Store(&dattended);
    Values dq(layer.q.size()), dk(layer.k.size()), dv(layer.v.size());
    for (int64_t n = 0; n < batch_.tokens(); ++n) {
      for (int64_t h = 0; h < s.heads; ++h) {
        BackwardScores(layer, n, h, dattended, &dq, &dk, &dv);
      }
    }
    for (Values* const d : {&dq, &dk, &dv}) Store(d);
    Rotate(&dq, s.heads, -1);
    Rotate(&dk, s.kv_heads, -1);
    if (s.qk_norm) {
      const auto through_norm = [&](const Values& raw, const std::string& name, Values* d) {
        Values draw(raw.size());
        NormBackward(d, raw, Name(i, name), &draw);
        *d = draw;
      };
      through_norm(layer.q_raw, "self_attn.q_norm.weight", &dq);
      through_norm(layer.k_raw, "self_attn.k_norm.weight", &dk);
    }
    Values dh(layer.h.size());
    const auto project = [&](const std::string& module, const Values& dy) {
      Values* const dbias = Bias(i, module) != nullptr ? &G(i, module + ".bias") : nullptr;
      LinearBackward(dy, layer.h, W(i, module + ".weight"), s.hidden, &dh,
                     &G(i, module + ".weight"), dbias);
    };
    project("self_attn.q_proj", dq);
    project("self_attn.k_proj", dk);
    project("self_attn.v_proj", dv);
    NormBackward(&dh, layer.x, Name(i, "input_layernorm.weight"), dx);
  }

  // A recipe takes the sum over k, which equals dout . out, from the result that it stored.
  // dv_j += p_j dout;  ds_j = p_j (dout . v_j - sum_k p_k dout . v_k);  dq += ds_j k_j / sqrt(d);
  // dk_j += ds_j q / sqrt(d)
  void BackwardScores(const Layer& layer, int64_t n, int64_t h, const Values& dattended, Values* dq,
                      Values* dk, Values* dv) const {
    const octavo::engine::ModelShape& s = config_.shape;
    const int64_t from = AttendFrom(n), group = h / (s.heads / s.kv_heads);
    const int64_t query = (n * s.heads + h) * s.head_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    const Values p = Probabilities(layer, n, h);
    Values dp(p.size());
    double mean = 0;
    for (int64_t j = from; j <= n; ++j) {
      const int64_t key = (j * s.kv_heads + group) * s.head_dim;
      for (int64_t c = 0; c < s.head_dim; ++c) {
        (*dv)[key + c] += p[j - from] * dattended[query + c];
        dp[j - from] += dattended[query + c] * layer.v[key + c];
      }
      if (arithmetic_ == Arithmetic::kExact) mean += p[j - from] * dp[j - from];
    }
    if (arithmetic_ != Arithmetic::kExact) {
      for (int64_t c = 0; c < s.head_dim; ++c) {
        mean += dattended[query + c] * layer.attended[query + c];
      }
    }
    for (int64_t j = from; j <= n; ++j) {
      const int64_t key = (j * s.kv_heads + group) * s.head_dim;
      const double ds = p[j - from] * (dp[j - from] - mean) * scale;
      for (int64_t c = 0; c < s.head_dim; ++c) {
        (*dq)[query + c] += ds * layer.k[key + c];
        (*dk)[key + c] += ds * layer.q[query + c];
      }
    }
  }

  void ForwardMlp(int64_t i, Values* x) {
    const octavo::engine::ModelShape& s = config_.shape;
    Layer& layer = layers_[i];
    layer.y = *x;
    layer.g = Norm(*x, W(i, "post_attention_layernorm.weight"));
    layer.gate = Linear(layer.g, W(i, "mlp.gate_proj.weight"), nullptr, s.hidden);
    layer.up = Linear(layer.g, W(i, "mlp.up_proj.weight"), nullptr, s.hidden);
    layer.activated.resize(layer.up.size());
    for (size_t e = 0; e < layer.up.size(); ++e) {
      layer.activated[e] = layer.gate[e] / (1 + std::exp(-layer.gate[e]));
    }
    Store(&layer.activated);
    for (size_t e = 0; e < layer.up.size(); ++e) layer.activated[e] *= layer.up[e];
    Store(&layer.activated);
    AddLinear(layer.activated, W(i, "mlp.down_proj.weight"), s.intermediate, x);
  }

  void BackwardMlp(int64_t i, Values* dx) {
    const octavo::engine::ModelShape& s = config_.shape;
    const Layer& layer = layers_[i];
    Values dactivated(layer.activated.size()), dgate(layer.gate.size()), dup(layer.up.size());
    LinearBackward(*dx, layer.activated, W(i, "mlp.down_proj.weight"), s.intermediate, &dactivated,
                   &G(i, "mlp.down_proj.weight"), nullptr);
    Store(&dactivated);
    for (size_t e = 0; e < dgate.size(); ++e) {
      const double sigmoid = 1 / (1 + std::exp(-layer.gate[e]));
      const double slope = sigmoid + layer.gate[e] * sigmoid * (1 - sigmoid);
      dgate[e] = dactivated[e] * layer.up[e] * slope;
      const double silu = layer.gate[e] * sigmoid;
      dup[e] = dactivated[e] * (arithmetic_ == Arithmetic::kExact ? silu : RoundTo(silu, 8, -126));
    }
    Store(&dgate);
    Store(&dup);
    Values dg(layer.g.size());
    LinearBackward(dgate, layer.g, W(i, "mlp.gate_proj.weight"), s.hidden, &dg,
                   &G(i, "mlp.gate_proj.weight"), nullptr);
    LinearBackward(dup, layer.g, W(i, "mlp.up_proj.weight"), s.hidden, &dg,
                   &G(i, "mlp.up_proj.weight"), nullptr);
    NormBackward(&dg, layer.y, Name(i, "post_attention_layernorm.weight"), dx);
  }

  octavo::engine::ModelConfig config_;
  ValueMap weights_;
  Arithmetic arithmetic_;
  octavo::engine::LinearPolicy policy_;  // of every linear layer under kFp8
  octavo::engine::Batch batch_;
  std::vector<Layer> layers_;
  Values last_, normalised_, logits_;
  ValueMap gradients_;
};

}  // namespace octavo::testing_support
