#include "worker/engine/model/shape.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

struct PublishedModel {
  const char* name;
  ModelShape shape;
  double millions;
};

// Sizes and parameter counts that the model cards publish.
const PublishedModel kPublished[] = {
    {"Qwen2.5-0.5B",
     {.vocabulary = 151936,
      .hidden = 896,
      .intermediate = 4864,
      .layers = 24,
      .heads = 14,
      .kv_heads = 2,
      .head_dim = 64,
      .qkv_bias = true,
      .qk_norm = false,
      .tied = true},
     494.03},
    {"Qwen2.5-7B",
     {.vocabulary = 152064,
      .hidden = 3584,
      .intermediate = 18944,
      .layers = 28,
      .heads = 28,
      .kv_heads = 4,
      .head_dim = 128,
      .qkv_bias = true,
      .qk_norm = false,
      .tied = false},
     7615.62},
    {"Qwen3-0.6B",
     {.vocabulary = 151936,
      .hidden = 1024,
      .intermediate = 3072,
      .layers = 28,
      .heads = 16,
      .kv_heads = 8,
      .head_dim = 128,
      .qkv_bias = false,
      .qk_norm = true,
      .tied = true},
     596.05},
    {"Llama-3.1-8B",
     {.vocabulary = 128256,
      .hidden = 4096,
      .intermediate = 14336,
      .layers = 32,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .qkv_bias = false,
      .qk_norm = false,
      .tied = false},
     8030.26},
    {"SmolLM2-135M",
     {.vocabulary = 49152,
      .hidden = 576,
      .intermediate = 1536,
      .layers = 30,
      .heads = 9,
      .kv_heads = 3,
      .head_dim = 64,
      .qkv_bias = false,
      .qk_norm = false,
      .tied = true},
     134.52},
};

const Place kPlace = {.backend = "cpu", .machine = {.threads = 2, .float32_products = false}};

TEST(LayOutParameters, CountsWhatTheModelCardsSay) {
  for (const PublishedModel& model : kPublished) {
    const double millions = LayOutParameters(model.shape).parameter_count / 1e6;
    EXPECT_NEAR(millions, model.millions, 0.005) << model.name;
  }
}

TEST(LayOutParameters, PlacesParametersWithoutOverlapAndAligned) {
  const ParameterLayout layout = LayOutParameters(kPublished[0].shape);
  int64_t end = 0;
  std::set<std::string> names;
  for (const ParameterSpec& parameter : layout.parameters) {
    EXPECT_GE(parameter.offset, end) << parameter.name;
    EXPECT_EQ(parameter.offset % 64, 0) << parameter.name;
    EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
    EXPECT_EQ(parameter.name.rfind(parameter.module + ".", 0), 0u) << parameter.name;
    end = parameter.offset + parameter.count();
  }
  EXPECT_GE(layout.elements, end);
}

TEST(LayOutParameters, NamesBiasesQueryNormsAndTheHeadOnlyWhereTheModelHasThem) {
  auto names = [](const ModelShape& shape) {
    std::set<std::string> result;
    for (const ParameterSpec& parameter : LayOutParameters(shape).parameters) {
      result.insert(parameter.name);
    }
    return result;
  };
  EXPECT_EQ(names(kPublished[0].shape).count("model.layers.23.self_attn.k_proj.bias"), 1u);
  EXPECT_EQ(names(kPublished[0].shape).count("model.layers.0.self_attn.o_proj.bias"), 0u);
  EXPECT_EQ(names(kPublished[0].shape).count("lm_head.weight"), 0u);
  EXPECT_EQ(names(kPublished[1].shape).count("lm_head.weight"), 1u);
  EXPECT_EQ(names(kPublished[2].shape).count("model.layers.0.self_attn.q_norm.weight"), 1u);
  EXPECT_EQ(names(kPublished[3].shape).count("model.layers.0.self_attn.q_norm.weight"), 0u);
}

TEST(CountParameters, IsTheTotalOfTheLayout) {
  for (const PublishedModel& model : kPublished) {
    const ParameterLayout layout = LayOutParameters(model.shape);
    EXPECT_EQ(CountParameters(model.shape).elements, layout.elements) << model.name;
    EXPECT_EQ(CountParameters(model.shape).parameter_count, layout.parameter_count) << model.name;
  }
}

// Nothing of the size of the model is made: a layout of so many layers would not fit into memory.
TEST(EstimateMemory, CountsAnyNumberOfLayersAlike) {
  ModelShape shape = kPublished[4].shape;
  const RunShape run = {.micro_batch = 1, .sequence = 128};
  shape.layers = 1;
  const int64_t one = EstimateMemory(shape, run, kPlace).total();
  shape.layers = 2;
  const int64_t a_layer = EstimateMemory(shape, run, kPlace).total() - one;
  shape.layers = 1'000'000'000;
  EXPECT_EQ(EstimateMemory(shape, run, kPlace).total(), one + 999'999'999 * a_layer);
}

TEST(EstimateMemory, HoldsNoBf16CopyOfFp8Weights) {
  const ModelShape& shape = kPublished[4].shape;
  const int64_t linear = 30 * (2 * 576 * (576 + 192) + 3 * 576 * 1536);
  const int64_t embedding = 49152 * 576;
  const MemoryEstimate fp8 =
      EstimateMemory(shape, {.micro_batch = 1, .sequence = 512, .fp8 = true}, kPlace);
  const MemoryEstimate bf16 =
      EstimateMemory(shape, {.micro_batch = 1, .sequence = 512, .fp8 = false}, kPlace);
  // Codes and transposed codes: as many bytes as one BF16 copy, and the scales.
  EXPECT_NEAR(static_cast<double>(fp8.weights), 2.0 * (linear + embedding), 0.001 * 2.0 * linear);
  EXPECT_NEAR(static_cast<double>(bf16.weights), 2.0 * (linear + embedding), 0.001 * 2.0 * linear);
  EXPECT_EQ(fp8.optimizer, 3 * fp8.gradients);
  EXPECT_LT(fp8.activations, bf16.activations);
}

// The layout that cuBLASLt reads: rows and columns up to 16, codes up to 256 bytes, rows of block
// scales up to 4.
TEST(EstimateMemory, CountsMatricesAsTheirBackendLaysThemOut) {
  const ModelShape& shape = kPublished[4].shape;
  const RunShape run = {.micro_batch = 1, .sequence = 512, .fp8 = true};
  const auto up = [](int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  };
  const auto both = [&](int64_t rows, int64_t columns) {
    const int64_t codes = up(up(rows, 16) * up(columns, 16), 256);
    const int64_t down = up(rows, 128) / 128, across = up(columns, 128) / 128;
    return 2 * codes + 4 * (down * up(across, 4) + across * up(down, 4));
  };
  const int64_t linear = 30 * (2 * both(576, 576) + 2 * both(192, 576) + 3 * both(1536, 576));
  const int64_t other = 2 * (49152 * 576 + 61 * 576);
  EXPECT_EQ(EstimateMemory(shape, run, {.backend = "cuda", .machine = {}}).weights, linear + other);
  EXPECT_NE(EstimateMemory(shape, run, kPlace).weights, linear + other);
}

TEST(EstimateMemory, LiesBetweenBothPrecisionsWhenThePolicyMixesThem) {
  const ModelShape& shape = kPublished[4].shape;
  const RunShape fp8 = {.micro_batch = 2, .sequence = 256, .fp8 = true};
  RunShape mixed = fp8;
  LinearForms fp8_forms, bf16_forms;
  fp8_forms.Include(kFp8Policy);
  bf16_forms.Include(LinearPolicy());
  mixed.linears.assign(30 * 7, fp8_forms);
  EXPECT_EQ(EstimateMemory(shape, mixed, kPlace).total(),
            EstimateMemory(shape, fp8, kPlace).total());
  for (size_t layer = 0; layer < 30; ++layer) mixed.linears[7 * layer + 6] = bf16_forms;
  const RunShape bf16 = {.micro_batch = 2, .sequence = 256, .fp8 = false};
  EXPECT_GT(EstimateMemory(shape, mixed, kPlace).activations,
            EstimateMemory(shape, fp8, kPlace).activations);
  EXPECT_LT(EstimateMemory(shape, mixed, kPlace).activations,
            EstimateMemory(shape, bf16, kPlace).activations);
}

TEST(EstimateMemory, BoundsTheLogits) {
  ModelShape shape = kPublished[4].shape;
  const int64_t before =
      EstimateMemory(shape, {.micro_batch = 8, .sequence = 2048}, kPlace).total();
  shape.vocabulary *= 2;
  const int64_t after = EstimateMemory(shape, {.micro_batch = 8, .sequence = 2048}, kPlace).total();
  const int64_t growth_of_weights = int64_t{49152} * 576 * (2 + 12 + 4);
  EXPECT_LT(after - before - growth_of_weights, 1 << 20);
}

}  // namespace
}  // namespace octavo::engine
