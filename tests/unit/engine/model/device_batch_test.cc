// Batches on a device whose queues run late, or whose copies run early.
#include "worker/engine/model/device_batch.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/deferred_backend.h"
#include "tests/support/model_fixture.h"

namespace octavo::engine {
namespace {

using testing_support::DeferredBackend;
using testing_support::Document;
using testing_support::Model;
using testing_support::Pack;
using testing_support::RandomDocument;
using testing_support::RandomWeights;
using testing_support::ValueMap;

ModelConfig Config() {
  ModelConfig config;
  config.shape = {.vocabulary = 96,
                  .hidden = 48,
                  .intermediate = 80,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 16};
  config.sliding_window = 9;
  return config;
}

class Queues : public ::testing::TestWithParam<DeferredBackend::Copies> {
 protected:
  static std::unique_ptr<DeferredBackend> Open() {
    return std::make_unique<DeferredBackend>(*kernels::OpenBackend("cpu", {}), GetParam());
  }
};

// More batches than slots are uploaded before anything has run.
TEST_P(Queues, EveryOperationReadsTheBatchThatWasUploadedBeforeIt) {
  constexpr int64_t kTokens = 32;
  constexpr int kBatches = 5;
  const std::unique_ptr<DeferredBackend> backend = Open();
  auto device_batch = DeviceBatch::Create(Config(), kTokens, backend.get());
  ASSERT_TRUE(device_batch.ok()) << device_batch.status();
  auto read = kernels::Buffer<int32_t>::Create(backend.get(), kBatches * kTokens);
  ASSERT_TRUE(read.ok());
  std::vector<int32_t> expected;
  for (int i = 0; i < kBatches; ++i) {
    const Batch batch = Pack({{RandomDocument(kTokens, 96, static_cast<uint32_t>(i))}});
    expected.insert(expected.end(), batch.ids.begin(), batch.ids.end());
    ASSERT_TRUE(device_batch->Upload(batch, backend.get()).ok());
    Pass pass = {};
    device_batch->Describe(&pass);
    ASSERT_TRUE(backend
                    ->Run(kernels::Copy{
                        .to = read->data() + i * kTokens, .from = pass.ids, .bytes = kTokens * 4})
                    .ok());
  }
  std::vector<int32_t> ids(expected.size());
  ASSERT_TRUE(backend->CopyOut(ids.data(), read->data(), read->bytes()).ok());
  EXPECT_EQ(ids, expected);
}

TEST_P(Queues, TrainingGivesTheBitsOfABackendThatRunsAtOnce) {
  const ModelConfig config = Config();
  const ValueMap weights = RandomWeights(config.shape, 7);
  const RecipeSpec recipe = {.precision = RecipeSpec::Precision::kFp8, .keep_bf16 = {}};
  Model at_once({.config = config, .recipe = recipe, .max_tokens = 64}, weights);
  Model deferred({.config = config, .recipe = recipe, .max_tokens = 64}, weights, Open());
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const Batch batch = Pack({{RandomDocument(64, 96, seed)}});
    EXPECT_EQ(deferred.Train(batch).sum, at_once.Train(batch).sum);
  }
  EXPECT_EQ(deferred.Gradients(), at_once.Gradients());
}

INSTANTIATE_TEST_SUITE_P(Copies, Queues,
                         ::testing::Values(DeferredBackend::Copies::kLate,
                                           DeferredBackend::Copies::kEarly));

}  // namespace
}  // namespace octavo::engine
