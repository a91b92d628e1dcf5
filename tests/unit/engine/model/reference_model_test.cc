// The judge is judged: its gradients against central differences of its own loss, in float64.
#include "tests/support/reference_model.h"

#include "gtest/gtest.h"
#include "tests/support/model_fixture.h"

namespace octavo::testing_support {
namespace {

// Everything at once: biases, norms of q and k, grouped heads, scaled rotary angles, a window, a
// tied head.
engine::ModelConfig EveryFeature() {
  engine::ModelConfig config;
  config.shape = {.vocabulary = 11,
                  .hidden = 8,
                  .intermediate = 12,
                  .layers = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 4,
                  .qkv_bias = true,
                  .qk_norm = true,
                  .tied = true};
  config.rope = {.theta = 100,
                 .scaling = engine::RopeConfig::Scaling::kLlama3,
                 .factor = 8,
                 .low_frequency_factor = 1,
                 .high_frequency_factor = 4,
                 .original_max_positions = 32};
  config.sliding_window = 5;
  return config;
}

TEST(ReferenceModel, GradientsEqualCentralDifferences) {
  const engine::ModelConfig config = EveryFeature();
  const engine::Batch batch =
      Pack({{RandomDocument(7, 11, 1), RandomDocument(4, 11, 2)}, {RandomDocument(11, 11, 3)}});
  ReferenceModel model(config, RandomWeights(config.shape, 4));
  model.Forward(batch);
  model.Backward(1);
  const ValueMap gradients = model.gradients();
  constexpr double kStep = 1e-5;
  for (auto& [name, weights] : model.weights()) {
    for (size_t i = 0; i < weights.size(); i += 1 + weights.size() / 5) {
      const double weight = weights[i];
      weights[i] = weight + kStep;
      const double above = model.Forward(batch);
      weights[i] = weight - kStep;
      const double below = model.Forward(batch);
      weights[i] = weight;
      EXPECT_NEAR(gradients.at(name)[i], (above - below) / (2 * kStep), 1e-6) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace octavo::testing_support
