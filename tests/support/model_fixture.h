// Tiny models with seeded weights, batches packed from documents, and an engine around a
// transformer, for tests.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/support/reference_model.h"
#include "worker/engine/model/transformer.h"

namespace octavo::testing_support {

using Document = std::vector<int32_t>;

inline double RoundToBfloat16(double x) {
  return kernels::ToFloat(kernels::ToBfloat16(static_cast<float>(x)));
}

// Box and Muller's; the same on every platform.
inline double StandardNormal(std::mt19937& generator) {
  const double u = (generator() + 0.5) / 4294967296.0, v = generator() / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

// Weights of the size that keeps activations near 1, all of them BF16 numbers.
inline ValueMap RandomWeights(const engine::ModelShape& shape, uint32_t seed) {
  std::mt19937 generator(seed);
  ValueMap weights;
  for (const engine::ParameterSpec& parameter : engine::LayOutParameters(shape).parameters) {
    double scale = 1.2 / std::sqrt(static_cast<double>(parameter.columns));
    double mean = 0;
    if (parameter.kind == engine::ParameterKind::kEmbedding) scale = shape.tied ? 0.15 : 0.5;
    if (parameter.kind == engine::ParameterKind::kBias) scale = 0.2;
    if (parameter.kind == engine::ParameterKind::kNorm) mean = 1, scale = 0.2;
    Values& values = weights[parameter.name];
    values.resize(parameter.count());
    for (double& value : values) value = RoundToBfloat16(mean + scale * StandardNormal(generator));
  }
  return weights;
}

inline Document RandomDocument(int64_t tokens, int64_t vocabulary, uint32_t seed) {
  std::mt19937 generator(seed);
  Document document(tokens);
  for (int32_t& id : document) id = static_cast<int32_t>(generator() % vocabulary);
  return document;
}

// Each row is a list of documents, isolated from each other; rows must have one length.
inline engine::Batch Pack(const std::vector<std::vector<Document>>& rows) {
  engine::Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  for (const std::vector<Document>& row : rows) {
    for (const Document& document : row) {
      const int32_t start = static_cast<int32_t>(batch.ids.size());
      for (size_t i = 0; i < document.size(); ++i) {
        batch.ids.push_back(document[i]);
        batch.targets.push_back(i + 1 < document.size() ? document[i + 1] : engine::kMasked);
        batch.positions.push_back(static_cast<int32_t>(i));
        batch.attend_from.push_back(start);
      }
    }
  }
  batch.sequence = static_cast<int64_t>(batch.ids.size()) / batch.rows;
  return batch;
}

// A transformer with its parameters, on the CPU backend unless given another.
class Model {
 public:
  struct Options {
    engine::ModelConfig config;
    engine::RecipeSpec recipe;
    int64_t max_tokens = 0;
    bool for_training = true;
  };

  Model(const Options& options, const ValueMap& weights,
        std::unique_ptr<kernels::Backend> backend = nullptr)
      : backend_(std::move(backend)), layout_(engine::LayOutParameters(options.config.shape)) {
    if (backend_ == nullptr) backend_ = Take(kernels::OpenBackend("cpu", {}));
    parameters_ = std::make_unique<engine::Parameters>(
        Take(engine::Parameters::Create(layout_, backend_.get())));
    transformer_ = Take(engine::Transformer::Create({.config = options.config,
                                                     .recipe = options.recipe,
                                                     .max_tokens = options.max_tokens,
                                                     .for_training = options.for_training},
                                                    layout_, backend_.get()));
    SetWeights(weights);
  }

  // Under the policy of step `step` from here on; 1 until then.
  void MoveToStep(int64_t step) {
    step_ = step;
    Check(transformer_->UpdateWeights(*parameters_, step_));
  }

  void SetWeights(const ValueMap& weights) {
    std::vector<float> flat(layout_.elements, 0.0f);
    for (const engine::ParameterSpec& parameter : layout_.parameters) {
      const Values& values = weights.at(parameter.name);
      std::copy(values.begin(), values.end(), flat.begin() + parameter.offset);
    }
    Check(backend_->CopyIn(parameters_->master(), flat.data(), Bytes()));
    Check(transformer_->UpdateWeights(*parameters_, step_));
  }

  // A step of one micro-batch, without its update.
  engine::LossSum Train(const engine::Batch& batch, double gradient_scale = 1) {
    Check(transformer_->step().Begin(/*learning_rate=*/0));
    Check(transformer_->Train(batch, gradient_scale, *parameters_));
    const engine::StepReading step = ReadStep();
    return {.sum = step.state.loss.sum, .tokens = step.state.loss.tokens};
  }
  // What the last step and the weights at hand have left.
  engine::StepReading ReadStep() { return Take(transformer_->step().Read()); }
  engine::LossSum Evaluate(const engine::Batch& batch, engine::RecipeSpec::Precision precision) {
    return Evaluate(batch, PolicyOf(precision));
  }
  engine::LossSum Evaluate(const engine::Batch& batch, const engine::PolicyTable& policy) {
    return Take(transformer_->Evaluate(batch, policy));
  }
  std::vector<float> Logits(const engine::Batch& batch, const std::vector<int64_t>& indices,
                            engine::RecipeSpec::Precision precision) {
    return Take(transformer_->Logits(batch, indices, PolicyOf(precision)));
  }
  void ClearGradients() {
    Check(backend_->Run(kernels::FillZero{.memory = parameters_->gradient(), .bytes = Bytes()}));
  }

  ValueMap Gradients() {
    std::vector<float> flat(layout_.elements);
    Check(backend_->CopyOut(flat.data(), parameters_->gradient(), Bytes()));
    ValueMap gradients;
    for (const engine::ParameterSpec& parameter : layout_.parameters) {
      const auto first = flat.begin() + parameter.offset;
      gradients[parameter.name].assign(first, first + parameter.count());
    }
    return gradients;
  }

  kernels::Backend& backend() { return *backend_; }
  engine::Transformer& transformer() { return *transformer_; }
  const engine::ParameterLayout& layout() const { return layout_; }

 private:
  template <typename T>
  static T Take(absl::StatusOr<T> value) {
    Check(value.status());
    return *std::move(value);
  }
  static void Check(const absl::Status& status) {
    if (!status.ok()) {
      ADD_FAILURE() << status;
      std::abort();
    }
  }
  // The recipe's at the step at hand, or BF16 everywhere.
  engine::PolicyTable PolicyOf(engine::RecipeSpec::Precision precision) const {
    return precision == engine::RecipeSpec::Precision::kFp8 ? transformer_->policy()
                                                            : engine::PolicyTable();
  }
  int64_t Bytes() const { return layout_.elements * static_cast<int64_t>(sizeof(float)); }

  std::unique_ptr<kernels::Backend> backend_;
  engine::ParameterLayout layout_;
  std::unique_ptr<engine::Parameters> parameters_;
  std::unique_ptr<engine::Transformer> transformer_;
  int64_t step_ = 1;
};

// ||a - b|| / ||b||
inline double RelativeError(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline double GlobalNorm(const ValueMap& gradients) {
  double sum = 0;
  for (const auto& [name, values] : gradients) {
    for (const double value : values) sum += value * value;
  }
  return std::sqrt(sum);
}

}  // namespace octavo::testing_support
