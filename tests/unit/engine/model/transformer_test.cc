#include "worker/engine/model/transformer.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/model_fixture.h"
#include "tests/support/tiny_llama.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {
namespace {

using ::testing::HasSubstr;
using testing_support::Document;
using testing_support::kBf16;
using testing_support::kBothPrecisions;
using testing_support::kFp8;
using testing_support::MakeModel;
using testing_support::Model;
using testing_support::Pack;
using testing_support::RandomDocument;
using testing_support::RandomWeights;
using testing_support::Recipe;
using testing_support::ReferenceGradients;
using testing_support::ReferenceModel;
using testing_support::RelativeError;
using testing_support::TinyLlama;
using testing_support::TwoRows;
using testing_support::ValueMap;
using testing_support::Values;
using testing_support::WorstError;

TEST(Transformer, TrainsAnyNumberOfTokens) {
  for (const RecipeSpec::Precision precision : kBothPrecisions) {
    Model model = MakeModel(TinyLlama(), Recipe(precision), 200);
    for (const int64_t tokens : {1, 127, 128, 129, 200}) {
      Batch batch = Pack({{RandomDocument(tokens, 96, 5)}});
      batch.targets.back() = 17;  // a row of one token has a target, too
      model.ClearGradients();
      model.Train(batch);
      EXPECT_LT(WorstError(model.Gradients(), ReferenceGradients(TinyLlama(), batch)),
                precision == kFp8 ? 0.5 : 0.06)
          << tokens;
    }
  }
}

// Products of other shapes may sum in another order, and a few of the BF16 numbers that are rounded
// from the sums then fall to the other side.
constexpr double kOtherSummationOrder = 2e-3;

TEST(Transformer, PackedDocumentsTrainAsIfTheyWereAlone) {
  const Document a = RandomDocument(40, 96, 1), b = RandomDocument(24, 96, 2);
  Model model = MakeModel(TinyLlama(), Recipe(kBf16));
  const double packed_loss = model.Train(Pack({{a, b}})).sum;
  const ValueMap packed = model.Gradients();
  model.ClearGradients();
  const double separate_loss = model.Train(Pack({{a}})).sum + model.Train(Pack({{b}})).sum;
  EXPECT_NEAR(packed_loss, separate_loss, 1e-5 * separate_loss);
  EXPECT_LT(WorstError(packed, model.Gradients()), kOtherSummationOrder);
}

TEST(Transformer, ATokenReachesNoOtherDocument) {
  for (const RecipeSpec::Precision precision : kBothPrecisions) {
    Model model = MakeModel(TinyLlama(), Recipe(kFp8));
    Batch batch = TwoRows();
    const std::vector<int64_t> of_others = {40, 50, 63, 64, 100, 127};
    const std::vector<float> before = model.Logits(batch, of_others, precision);
    batch.ids[20] = (batch.ids[20] + 1) % 96;
    EXPECT_EQ(model.Logits(batch, of_others, precision), before);
    EXPECT_NE(model.Logits(batch, {20}, precision), before);
  }
}

TEST(Transformer, ATokenReachesNoEarlierOne) {
  for (const RecipeSpec::Precision precision : kBothPrecisions) {
    Model model = MakeModel(TinyLlama(), Recipe(kFp8));
    Batch batch = TwoRows();
    const std::vector<float> earlier = model.Logits(batch, {0, 10, 29}, precision);
    const std::vector<float> later = model.Logits(batch, {30, 39}, precision);
    batch.ids[30] = (batch.ids[30] + 1) % 96;
    EXPECT_EQ(model.Logits(batch, {0, 10, 29}, precision), earlier);
    EXPECT_NE(model.Logits(batch, {30, 39}, precision), later);
  }
}

TEST(Transformer, ATokenReachesExactlyItsWindow) {
  ModelConfig config = TinyLlama();
  config.shape.layers = 1;
  config.sliding_window = 9;
  Model model = MakeModel(config, Recipe(kBf16));
  Batch batch = TwoRows();
  const std::vector<float> inside = model.Logits(batch, {12 + 8}, kBf16);
  const std::vector<float> outside = model.Logits(batch, {12 + 9}, kBf16);
  batch.ids[12] = (batch.ids[12] + 1) % 96;
  EXPECT_NE(model.Logits(batch, {12 + 8}, kBf16), inside);
  EXPECT_EQ(model.Logits(batch, {12 + 9}, kBf16), outside);
}

// Rows of 1 and of 59 targets: the gradient is that of the sum, however the rows are cut.
TEST(Transformer, GradientsDoNotDependOnTheCutIntoMicroBatches) {
  Batch row_a = Pack({{RandomDocument(60, 96, 1)}});
  std::fill(row_a.targets.begin() + 1, row_a.targets.end(), kMasked);
  const Batch row_b = Pack({{RandomDocument(60, 96, 2)}});
  Batch both = Pack({{RandomDocument(60, 96, 1)}, {RandomDocument(60, 96, 2)}});
  std::fill(both.targets.begin() + 1, both.targets.begin() + 60, kMasked);

  Model model = MakeModel(TinyLlama(), Recipe(kBf16));
  const double scale = 1.0 / 60;
  const LossSum whole = model.Train(both, scale);
  const ValueMap expected = model.Gradients();
  model.ClearGradients();
  const LossSum first = model.Train(row_a, scale), second = model.Train(row_b, scale);
  EXPECT_EQ(first.tokens, 1);
  EXPECT_EQ(whole.tokens, first.tokens + second.tokens);
  EXPECT_NEAR(whole.sum, first.sum + second.sum, 1e-5 * whole.sum);
  EXPECT_LT(WorstError(model.Gradients(), expected), kOtherSummationOrder);
}

TEST(Transformer, GradientsAccumulateAndScale) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  model.Train(TwoRows(), 0.5);
  const ValueMap half = model.Gradients();
  model.Train(TwoRows(), 0.5);
  ValueMap twice = half;
  for (auto& [name, values] : twice) {
    for (double& value : values) value *= 2;
  }
  EXPECT_LT(WorstError(model.Gradients(), twice), 1e-6);
}

TEST(Transformer, ABatchWithoutTargetsAddsNothing) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  Batch batch = TwoRows();
  std::fill(batch.targets.begin(), batch.targets.end(), kMasked);
  const LossSum loss = model.Train(batch);
  EXPECT_EQ(loss.sum, 0);
  EXPECT_EQ(loss.tokens, 0);
  EXPECT_EQ(testing_support::GlobalNorm(model.Gradients()), 0);
  EXPECT_EQ(model.Evaluate(batch, kFp8).sum, 0);
}

TEST(Transformer, TheSameStepTwiceIsBitwiseEqual) {
  for (const RecipeSpec::Precision precision : kBothPrecisions) {
    Model model = MakeModel(TinyLlama(), Recipe(precision));
    const double loss = model.Train(TwoRows()).sum;
    const ValueMap gradients = model.Gradients();
    model.ClearGradients();
    EXPECT_EQ(model.Train(TwoRows()).sum, loss);
    EXPECT_EQ(model.Gradients(), gradients);
  }
}

TEST(Transformer, EvaluationsBetweenMicroBatchesDisturbNothing) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  model.Train(TwoRows());
  model.Train(TwoRows());
  const ValueMap expected = model.Gradients();
  model.ClearGradients();
  model.Train(TwoRows());
  const ValueMap before = model.Gradients();
  model.Evaluate(TwoRows(), kBf16);
  model.Evaluate(Pack({{RandomDocument(5, 96, 9)}}), kFp8);
  model.Logits(TwoRows(), {0, 1}, kBf16);
  EXPECT_EQ(model.Gradients(), before);
  model.Train(TwoRows());
  EXPECT_EQ(model.Gradients(), expected);
}

TEST(Transformer, TheGradientOfATiedMatrixIsTheSumOfBothUses) {
  ModelConfig tied = TinyLlama();
  tied.shape.tied = true;
  const ValueMap weights = RandomWeights(tied.shape, 7);
  ValueMap untied_weights = weights;
  untied_weights["lm_head.weight"] = weights.at("model.embed_tokens.weight");
  Model one({.config = tied, .recipe = Recipe(kFp8), .max_tokens = 128}, weights);
  Model two({.config = TinyLlama(), .recipe = Recipe(kFp8), .max_tokens = 128}, untied_weights);
  EXPECT_EQ(one.Train(TwoRows()).sum, two.Train(TwoRows()).sum);
  const ValueMap gradients = two.Gradients();
  Values sum = gradients.at("model.embed_tokens.weight");
  const Values& head = gradients.at("lm_head.weight");
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += head[i];
  EXPECT_LT(RelativeError(one.Gradients().at("model.embed_tokens.weight"), sum), 1e-6);
}

TEST(Transformer, SeesNewWeightsOnlyAndAtOnceAfterUpdateWeights) {
  for (const RecipeSpec::Precision precision : kBothPrecisions) {
    ModelConfig config = TinyLlama();
    Model model = MakeModel(config, Recipe(precision));
    const double old_loss = model.Evaluate(TwoRows(), precision).sum;
    const ValueMap weights = RandomWeights(config.shape, 8);
    model.SetWeights(weights);
    Model fresh({.config = config, .recipe = Recipe(precision), .max_tokens = 128}, weights);
    const double new_loss = model.Evaluate(TwoRows(), precision).sum;
    EXPECT_NE(new_loss, old_loss);
    EXPECT_EQ(new_loss, fresh.Evaluate(TwoRows(), precision).sum);
    model.Train(TwoRows());
    fresh.Train(TwoRows());
    EXPECT_EQ(model.Gradients(), fresh.Gradients());
  }
}

TEST(Transformer, EvaluatesInBf16AsABf16ModelDoes) {
  Model fp8 = MakeModel(TinyLlama(), Recipe(kFp8));
  Model bf16 = MakeModel(TinyLlama(), Recipe(kBf16));
  EXPECT_EQ(fp8.Evaluate(TwoRows(), kBf16).sum, bf16.Evaluate(TwoRows(), kBf16).sum);
  EXPECT_NE(fp8.Evaluate(TwoRows(), kFp8).sum, fp8.Evaluate(TwoRows(), kBf16).sum);
}

TEST(Transformer, EvaluatesInFp8AsItTrains) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  EXPECT_EQ(model.Evaluate(TwoRows(), kFp8).sum, model.Train(TwoRows()).sum);
}

TEST(Transformer, WithoutTrainingBuffersEvaluatesTheSame) {
  const ModelConfig config = TinyLlama();
  Model trained = MakeModel(config, Recipe(kFp8));
  Model evaluated(
      {.config = config, .recipe = Recipe(kFp8), .max_tokens = 128, .for_training = false},
      RandomWeights(config.shape, 7));
  for (const RecipeSpec::Precision precision : kBothPrecisions) {
    EXPECT_EQ(evaluated.Evaluate(TwoRows(), precision).sum,
              trained.Evaluate(TwoRows(), precision).sum);
  }
}

TEST(Transformer, LogitsAreThoseOfTheReference) {
  Model model = MakeModel(TinyLlama(), Recipe(kBf16));
  ReferenceModel reference(TinyLlama(), RandomWeights(TinyLlama().shape, 7));
  reference.Forward(TwoRows());
  const std::vector<float> logits = model.Logits(TwoRows(), {127, 0, 41}, kBf16);
  Values expected;
  for (const int64_t index : {127, 0, 41}) {
    const auto row = reference.logits().begin() + index * 96;
    expected.insert(expected.end(), row, row + 96);
  }
  EXPECT_LT(RelativeError(Values(logits.begin(), logits.end()), expected), 0.02);
}

// 7 linears a layer with 3 GEMMs each; the head adds 3 a chunk of tokens, here 1 chunk.
TEST(Transformer, RunsTheGemmsOfItsRecipeAndNoOther) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  kernels::GemmCounts before = model.backend().gemm_counts();
  model.Train(TwoRows());
  kernels::GemmCounts after = model.backend().gemm_counts();
  EXPECT_EQ(after.fp8 - before.fp8, 3 * 7 * 2);
  EXPECT_EQ(after.bf16 - before.bf16, 3);

  before = after;
  model.Evaluate(TwoRows(), kFp8);
  after = model.backend().gemm_counts();
  EXPECT_EQ(after.fp8 - before.fp8, 7 * 2);
  EXPECT_EQ(after.bf16 - before.bf16, 1);

  before = after;
  model.Evaluate(TwoRows(), kBf16);
  after = model.backend().gemm_counts();
  EXPECT_EQ(after.fp8 - before.fp8, 0);
  EXPECT_EQ(after.bf16 - before.bf16, 7 * 2 + 1);
}

TEST(Transformer, KeepsTheLinearsThatThePolicyNamesInBf16) {
  Model model =
      MakeModel(TinyLlama(), {.precision = kFp8, .keep_bf16 = {"model.layers.0.*", "*.k_proj"}});
  const kernels::GemmCounts before = model.backend().gemm_counts();
  model.Train(TwoRows());
  const kernels::GemmCounts after = model.backend().gemm_counts();
  EXPECT_EQ(after.fp8 - before.fp8, 3 * 6);
  EXPECT_EQ(after.bf16 - before.bf16, 3 * 8 + 3);
  EXPECT_LT(WorstError(model.Gradients(), ReferenceGradients(TinyLlama(), TwoRows())), 0.45);
}

// Whichever layer the policy names: evaluation goes over the buffers of one layer only.
TEST(Transformer, EvaluatesEveryPolicyAsItTrainsIt) {
  for (const std::string pattern :
       {"model.layers.0.*", "model.layers.1.*", "*.v_proj", "model.layers.0.mlp.up_proj"}) {
    SCOPED_TRACE(pattern);
    Model model = MakeModel(TinyLlama(), {.precision = kFp8, .keep_bf16 = {pattern}});
    EXPECT_EQ(model.Evaluate(TwoRows(), kFp8).sum, model.Train(TwoRows()).sum);
  }
}

TEST(Transformer, WithEveryLinearKeptInBf16IsTheBf16Recipe) {
  Model kept = MakeModel(TinyLlama(), {.precision = kFp8, .keep_bf16 = {"*"}});
  Model bf16 = MakeModel(TinyLlama(), Recipe(kBf16));
  EXPECT_EQ(kept.Train(TwoRows()).sum, bf16.Train(TwoRows()).sum);
  EXPECT_EQ(kept.Gradients(), bf16.Gradients());
}

// A vocabulary that allows 128 tokens a chunk: 130 tokens take two, and give what two batches of 65
// give.
TEST(Transformer, TakesTheLossInChunksOfBoundedSize) {
  ModelConfig config;
  config.shape = {.vocabulary = 262144,
                  .hidden = 8,
                  .intermediate = 16,
                  .layers = 1,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 4};
  ASSERT_EQ(HeadRows(130, config.shape.vocabulary), 128);
  const Document a = RandomDocument(65, 262144, 1), b = RandomDocument(65, 262144, 2);
  Model model = MakeModel(config, Recipe(kBf16), 130);
  const int64_t before = model.backend().gemm_counts().bf16;
  const double whole = model.Train(Pack({{a}, {b}})).sum;
  EXPECT_EQ(model.backend().gemm_counts().bf16 - before, 3 * 7 + 3 * 2);
  const ValueMap expected = model.Gradients();
  model.ClearGradients();
  EXPECT_NEAR(model.Train(Pack({{a}})).sum + model.Train(Pack({{b}})).sum, whole, 1e-5 * whole);
  EXPECT_LT(WorstError(model.Gradients(), expected), kOtherSummationOrder);
}

// A micro-batch is a sequence of operations over fixed addresses: played again it does the same.
TEST(Transformer, ACapturedMicroBatchReplaysToTheSameBits) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  kernels::Program program;
  model.backend().Capture(&program);
  model.Train(TwoRows());
  model.backend().Capture(nullptr);
  const ValueMap expected = model.Gradients();
  model.ClearGradients();
  EXPECT_NE(model.Gradients(), expected);
  ASSERT_TRUE(model.backend().Run(program).ok());
  EXPECT_EQ(model.Gradients(), expected);
}

TEST(Transformer, CountsWeightsThatAreNotFiniteUntilTheyAreQuantisedAnew) {
  const ModelConfig config = TinyLlama();
  ValueMap weights = RandomWeights(config.shape, 7);
  Model model({.config = config, .recipe = Recipe(kFp8), .max_tokens = 128}, weights);
  EXPECT_FALSE(model.ReadStep().nonfinite.any());
  const ValueMap good = weights;
  weights["model.layers.1.mlp.up_proj.weight"][3] = std::numeric_limits<double>::quiet_NaN();
  model.SetWeights(weights);
  EXPECT_TRUE(model.transformer().step().Begin(0).ok());
  EXPECT_EQ(model.ReadStep().nonfinite.of(NonfiniteKind::kWeight), 1);
  model.SetWeights(good);
  EXPECT_FALSE(model.ReadStep().nonfinite.any());
}

// attention's result is quantised twice, for forward and for backward, but counted once.
TEST(Transformer, CountsEveryValueOnce) {
  Model model = MakeModel(TinyLlama(), Recipe(kFp8));
  kernels::Program program;
  model.backend().Capture(&program);
  model.Train(TwoRows());
  model.backend().Capture(nullptr);
  int quantised = 0, counted = 0;
  const auto count = [&](const kernels::TileOutputs& tiles) {
    ++quantised;
    if (tiles.nonfinite != nullptr) ++counted;
  };
  for (const kernels::Operation& operation : program) {
    std::visit(kernels::Overloaded{[&](const kernels::QuantizeTiles& op) { count(op.tiles); },
                                   [&](const kernels::RmsNormQuantize& op) { count(op.tiles); },
                                   [&](const kernels::SwigluQuantize& op) { count(op.tiles); },
                                   [&](const kernels::SwigluBackwardQuantize& op) {
                                     count(op.dgate_tiles);
                                     count(op.dup_tiles);
                                   },
                                   [](const auto&) {}},
               operation);
  }
  EXPECT_EQ(counted, 2 * (4 + 7));  // of each layer: inputs, output gradients
  EXPECT_EQ(quantised, counted + 2);
}

// Where every GEMM is FP8, what norms and SwiGLU compute is never stored in BF16; where one of a
// group reads it, it is.
TEST(Transformer, QuantisesAsItComputesAndStoresWhatIsRead) {
  struct Counts {
    int norms = 0, norm_values = 0, swiglus = 0, swiglu_values = 0, gradients = 0,
        gradient_values = 0;
    bool operator==(const Counts&) const = default;
  };
  const auto count = [](const RecipeSpec& recipe) {
    Model model = MakeModel(TinyLlama(), recipe);
    kernels::Program program;
    model.backend().Capture(&program);
    model.Train(TwoRows());
    model.backend().Capture(nullptr);
    Counts counts;
    for (const kernels::Operation& operation : program) {
      std::visit(kernels::Overloaded{[&](const kernels::RmsNormQuantize& op) {
                                       ++counts.norms;
                                       counts.norm_values += op.norm.y != nullptr ? 1 : 0;
                                     },
                                     [&](const kernels::SwigluQuantize& op) {
                                       ++counts.swiglus;
                                       counts.swiglu_values += op.swiglu.y != nullptr ? 1 : 0;
                                     },
                                     [&](const kernels::SwigluBackwardQuantize& op) {
                                       ++counts.gradients;
                                       counts.gradient_values += op.swiglu.dgate != nullptr ? 1 : 0;
                                       counts.gradient_values += op.swiglu.dup != nullptr ? 1 : 0;
                                     },
                                     [](const auto&) {}},
                 operation);
    }
    return counts;
  };
  EXPECT_EQ(count(Recipe(kBf16)), Counts());
  EXPECT_EQ(count(Recipe(kFp8)), (Counts{.norms = 4, .swiglus = 2, .gradients = 2}));
  EXPECT_EQ(count({.precision = kFp8, .keep_bf16 = {"*.0.mlp.up_proj"}}),
            (Counts{.norms = 4,
                    .norm_values = 1,
                    .swiglus = 2,
                    .swiglu_values = 0,
                    .gradients = 2,
                    .gradient_values = 1}));
}

// attention's result overflows first; whatever follows it is not finite either.
TEST(Transformer, NamesTheModuleWhoseInputOverflows) {
  const ModelConfig config = TinyLlama();
  ValueMap weights = RandomWeights(config.shape, 7);
  for (double& value : weights["model.layers.1.self_attn.v_proj.weight"]) value *= 1e38;
  Model model({.config = config, .recipe = Recipe(kFp8), .max_tokens = 128}, weights);
  model.Train(TwoRows());
  const NonfiniteCounts counts = model.ReadStep().nonfinite;
  EXPECT_EQ(counts.first_module, "model.layers.1.self_attn.o_proj");
  EXPECT_STREQ(NameOf(counts.first_kind), "activations");
}

// An Inf in dy that quantisation would turn into 448.
TEST(Transformer, CountsOutputGradientsThatOverflow) {
  const ModelConfig config = TinyLlama();
  ValueMap weights = RandomWeights(config.shape, 7);
  for (double& value : weights["lm_head.weight"]) value *= 30;
  Model model({.config = config, .recipe = Recipe(kFp8), .max_tokens = 128}, weights);
  model.Train(TwoRows(), 1e38);
  const NonfiniteCounts counts = model.ReadStep().nonfinite;
  EXPECT_GT(counts.of(NonfiniteKind::kOutputGradient), 0);
  EXPECT_EQ(counts.of(NonfiniteKind::kActivation), 0);
  EXPECT_EQ(counts.of(NonfiniteKind::kNormRow), 0);
  EXPECT_EQ(counts.first_module, "model.layers.1.mlp.down_proj");
}

TEST(Transformer, AnEvaluationLeavesTheCountersOfTrainingAlone) {
  const ModelConfig config = TinyLlama();
  ValueMap weights = RandomWeights(config.shape, 7);
  for (double& value : weights["model.embed_tokens.weight"]) value *= 1e21;
  Model model({.config = config, .recipe = Recipe(kFp8), .max_tokens = 128}, weights);
  EXPECT_TRUE(std::isnan(model.Evaluate(TwoRows(), kFp8).sum));
  EXPECT_TRUE(std::isnan(model.Evaluate(TwoRows(), kBf16).sum));
  EXPECT_FALSE(model.ReadStep().nonfinite.any());
}

std::string RefusalOf(Model& model, const Batch& batch) {
  return std::string(model.transformer().Evaluate(batch, PolicyTable()).status().message());
}

TEST(Transformer, RefusesBatchesThatKernelsWouldFollowOutOfBounds) {
  Model model = MakeModel(TinyLlama(), Recipe(kBf16));
  Batch batch = TwoRows();
  batch.ids[5] = 96;
  EXPECT_THAT(RefusalOf(model, batch), HasSubstr("id 96 of token 5"));
  batch = TwoRows();
  batch.targets[6] = -1;
  EXPECT_THAT(RefusalOf(model, batch), HasSubstr("target -1 of token 6"));
  batch = TwoRows();
  batch.attend_from[7] = 8;
  EXPECT_THAT(RefusalOf(model, batch), HasSubstr("attend_from 8 of token 7"));
  batch = TwoRows();
  batch.positions[0] = 128;
  EXPECT_THAT(RefusalOf(model, batch), HasSubstr("position 128 of token 0"));
  EXPECT_THAT(RefusalOf(model, Pack({{RandomDocument(129, 96, 1)}})), HasSubstr("129 tokens"));
}

TEST(Transformer, RefusesAPatternThatMatchesNoLinear) {
  const ModelConfig config = TinyLlama();
  const absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::OpenBackend("cpu", {});
  ASSERT_TRUE(backend.ok());
  const auto transformer = Transformer::Create(
      {.config = config, .recipe = {.keep_bf16 = {"*.qkv_proj"}}, .max_tokens = 8},
      LayOutParameters(config.shape), backend->get());
  EXPECT_EQ(transformer.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace octavo::engine
