// A small model, its batch and its gradients in float64, for tests of the transformer.
#pragma once

#include <algorithm>

#include "tests/support/model_fixture.h"

namespace octavo::testing_support {

inline constexpr engine::RecipeSpec::Precision kFp8 = engine::RecipeSpec::Precision::kFp8;
inline constexpr engine::RecipeSpec::Precision kBf16 = engine::RecipeSpec::Precision::kBf16;
inline constexpr engine::RecipeSpec::Precision kBothPrecisions[] = {kFp8, kBf16};

// Ragged against tiles of 128 on purpose.
inline engine::ModelConfig TinyLlama() {
  engine::ModelConfig config;
  config.shape = {.vocabulary = 96,
                  .hidden = 144,
                  .intermediate = 176,
                  .layers = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 32};
  return config;
}

inline engine::RecipeSpec Recipe(engine::RecipeSpec::Precision precision) {
  return {.precision = precision, .keep_bf16 = {}};
}

inline Model MakeModel(const engine::ModelConfig& config, const engine::RecipeSpec& recipe,
                       int64_t max_tokens = 128) {
  return Model({.config = config, .recipe = recipe, .max_tokens = max_tokens},
               RandomWeights(config.shape, 7));
}

inline engine::Batch TwoRows() {
  return Pack(
      {{RandomDocument(40, 96, 1), RandomDocument(24, 96, 2)}, {RandomDocument(64, 96, 3)}});
}

inline ValueMap ReferenceGradients(
    const engine::ModelConfig& config, const engine::Batch& batch,
    ReferenceModel::Arithmetic arithmetic = ReferenceModel::Arithmetic::kExact,
    const engine::LinearPolicy& policy = engine::kFp8Policy) {
  ReferenceModel reference(config, RandomWeights(config.shape, 7), arithmetic, policy);
  reference.Forward(batch);
  reference.Backward(1);
  return reference.gradients();
}

inline double WorstError(const ValueMap& gradients, const ValueMap& expected) {
  double worst = 0;
  for (const auto& [name, values] : expected) {
    worst = std::max(worst, RelativeError(gradients.at(name), values));
  }
  return worst;
}

// How far `gradients` lie from `own` on the way to `other`: 0 at `own`, 1 at `other`; each
// parameter is measured by the norm of its own. Errors that have nothing to do with the way average
// out over all numbers, where a distance adds them up: so this tells close neighbours apart.
inline double ShareOfTheWay(const ValueMap& gradients, const ValueMap& own, const ValueMap& other) {
  double along = 0, way = 0;
  for (const auto& [name, values] : own) {
    const Values &at = gradients.at(name), &end = other.at(name);
    double squares = 0, products = 0, lengths = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += values[i] * values[i];
      products += (at[i] - values[i]) * (end[i] - values[i]);
      lengths += (end[i] - values[i]) * (end[i] - values[i]);
    }
    along += products / squares;
    way += lengths / squares;
  }
  return along / way;
}

}  // namespace octavo::testing_support
