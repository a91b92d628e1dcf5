// Weights between a Hugging Face folder and the master arrays.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/types/span.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"
#include "worker/engine/checkpoint/chunks.h"
#include "worker/engine/checkpoint/random_weights.h"
#include "worker/engine/checkpoint/safetensors_writer.h"
#include "worker/engine/checkpoint/weights_export.h"
#include "worker/engine/checkpoint/weights_import.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ModelShape kShape = {.vocabulary = 11,
                               .hidden = 8,
                               .intermediate = 12,
                               .layers = 1,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 4,
                               .qkv_bias = true,
                               .tied = true};

struct Stored {
  TensorType type;
  std::vector<int64_t> shape;
  std::string bytes;
};
using StoredTensors = std::map<std::string, Stored>;

Stored Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {TensorType::kF32, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)};
}

// Every tensor of the layout, element i of parameter p being p + i / 1000.
StoredTensors WholeModel(const ModelShape& shape) {
  StoredTensors tensors;
  float number = 0;
  for (const ParameterSpec& spec : LayOutParameters(shape).parameters) {
    std::vector<float> values(static_cast<size_t>(spec.count()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = number + static_cast<float>(i) / 1000;
    tensors[spec.name] = Floats(spec.is_matrix() ? std::vector<int64_t>{spec.rows, spec.columns}
                                                 : std::vector<int64_t>{spec.columns},
                                values);
    ++number;
  }
  return tensors;
}

SafetensorsFolder WriteModel(const TemporaryFolder& root, const StoredTensors& tensors) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, stored] : tensors) {
    list.push_back(
        {name, stored.type, stored.shape,
         [&bytes = stored.bytes](const TensorToWrite::Sink& write) { return write(bytes); }});
  }
  auto pending = PendingFolder::Create(root.At("model"));
  CHECK(pending.ok());
  CHECK(WriteSafetensors(*pending, "model.safetensors", std::move(list)).ok());
  CHECK(pending->Publish().ok());
  auto folder = SafetensorsFolder::Open(root.At("model"));
  CHECK(folder.ok());
  return *std::move(folder);
}

// Problems of the model's folder.
std::vector<std::string> ProblemsOf(const StoredTensors& tensors) {
  TemporaryFolder root;
  return CheckWeights(WriteModel(root, tensors), LayOutParameters(kShape)).problems;
}

constexpr char kUp[] = "model.layers.0.mlp.up_proj.weight";

TEST(CheckWeights, FindsNothingWrongWithAWholeModel) {
  EXPECT_THAT(ProblemsOf(WholeModel(kShape)), ::testing::IsEmpty());
}

TEST(CheckWeights, ListsEverythingAtOnce) {
  StoredTensors tensors = WholeModel(kShape);
  tensors.erase(kUp);
  tensors["model.layers.1.mlp.up_proj.weight"] = Floats({1}, {1});
  tensors["model.norm.weight"] = Floats({7}, std::vector<float>(7));
  EXPECT_THAT(ProblemsOf(tensors),
              ElementsAre(AllOf(HasSubstr("\"model.norm.weight\" has shape [7]"), HasSubstr("[8]")),
                          AllOf(HasSubstr("missing"), HasSubstr(kUp)),
                          AllOf(HasSubstr("does not know"),
                                HasSubstr("model.layers.1.mlp.up_proj.weight"))));
}

TEST(CheckWeights, SaysThatVocabularyAndEmbeddingDiffer) {
  StoredTensors tensors = WholeModel(kShape);
  tensors["model.embed_tokens.weight"] = Floats({10, 8}, std::vector<float>(80));
  EXPECT_THAT(ProblemsOf(tensors), ElementsAre(AllOf(HasSubstr("[10, 8]"), HasSubstr("[11, 8]"),
                                                     HasSubstr("vocab_size"))));
}

TEST(CheckWeights, RefusesTypesByName) {
  StoredTensors tensors = WholeModel(kShape);
  tensors[kUp] = {TensorType::kF8E4M3, {12, 8}, std::string(96, '\0')};
  tensors["model.norm.weight"] = {TensorType::kF64, {8}, std::string(64, '\0')};
  EXPECT_THAT(ProblemsOf(tensors),
              ElementsAre(AllOf(HasSubstr(kUp), HasSubstr("F8_E4M3"), HasSubstr("BF16 first")),
                          AllOf(HasSubstr("model.norm.weight"), HasSubstr("F64"))));
}

TEST(CheckWeights, HintsAtWholeSchemesOfNames) {
  StoredTensors tensors = WholeModel(kShape);
  tensors["language_model.model.norm.weight"] = Floats({1}, {1});
  EXPECT_THAT(ProblemsOf(tensors), ElementsAre(HasSubstr("multimodal")));
  tensors = WholeModel(kShape);
  tensors["model.layers.0.mlp.up_proj.weight_scale_inv"] = Floats({1}, {1});
  EXPECT_THAT(ProblemsOf(tensors), ElementsAre(HasSubstr("FP8 block checkpoints")));
}

class Weights : public ::testing::Test {
 protected:
  Weights()
      : backend_(*kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = 1})),
        parameters_(*Parameters::Create(LayOutParameters(kShape), backend_.get())) {}

  absl::Status Import(const StoredTensors& tensors) {
    warnings_.clear();
    return ImportWeights(WriteModel(TemporaryFolder(), tensors), parameters_, backend_.get(),
                         &warnings_);
  }
  std::vector<float> Master(const std::string& name) {
    for (const ParameterSpec& spec : parameters_.layout().parameters) {
      if (spec.name != name) continue;
      std::vector<float> values(static_cast<size_t>(spec.count()));
      CHECK(backend_->CopyOut(values.data(), parameters_.master() + spec.offset, 4 * spec.count())
                .ok());
      return values;
    }
    return {};
  }

  std::unique_ptr<kernels::Backend> backend_;
  Parameters parameters_;
  std::vector<std::string> warnings_;
};

TEST_F(Weights, AreLoadedWhereTheyBelong) {
  ASSERT_TRUE(Import(WholeModel(kShape)).ok());
  EXPECT_THAT(warnings_, ::testing::IsEmpty());
  EXPECT_EQ(Master("model.embed_tokens.weight")[87], 0.087f);
  EXPECT_EQ(Master("model.norm.weight")[7],
            static_cast<float>(parameters_.layout().parameters.size() - 1) + 0.007f);
}

TEST_F(Weights, ThatAreNotFiniteAreRefusedByTensorAndElement) {
  StoredTensors tensors = WholeModel(kShape);
  std::vector<float> norm(8, 1.0f);
  norm[5] = NAN;
  tensors["model.norm.weight"] = Floats({8}, norm);
  const absl::Status status = Import(tensors);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("\"model.norm.weight\""), HasSubstr("element 5 is nan")));
}

TEST_F(Weights, InHalfPrecisionsAreWidenedExactly) {
  StoredTensors tensors = WholeModel(kShape);
  const uint16_t half[8] = {0x3C00, 0xC000, 0x0001, 0x03FF, 0x7BFF, 0x8000, 0x3555, 0x0400};
  tensors["model.norm.weight"] = {
      TensorType::kF16, {8}, std::string(reinterpret_cast<const char*>(half), 16)};
  const uint16_t bfloat[8] = {0x3F80, 0xC000, 0x0001, 0x7F7F, 0x8000, 0x3EAB, 0x0080, 0x4049};
  tensors["model.layers.0.input_layernorm.weight"] = {
      TensorType::kBf16, {8}, std::string(reinterpret_cast<const char*>(bfloat), 16)};
  ASSERT_TRUE(Import(tensors).ok());
  EXPECT_THAT(Master("model.norm.weight"), ElementsAre(1.0f, -2.0f, 0x1p-24f, 1023 * 0x1p-24f,
                                                       65504.0f, -0.0f, 0x1.554p-2f, 0x1p-14f));
  EXPECT_THAT(
      Master("model.layers.0.input_layernorm.weight"),
      ElementsAre(1.0f, -2.0f, 0x1p-133f, 0x1.FEp127f, -0.0f, 0x1.56p-2f, 0x1p-126f, 0x1.92p1f));
}

TEST_F(Weights, OfATiedModelsRedundantHeadAreSkippedWithAWarning) {
  StoredTensors tensors = WholeModel(kShape);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = Floats({2}, {1, 2});
  ASSERT_TRUE(Import(tensors).ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("are equal")));
  tensors["lm_head.weight"].bytes[0] ^= 1;
  ASSERT_TRUE(Import(tensors).ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("NOT equal")));
}

TEST_F(Weights, AtRandomHaveTheConfiguredSpread) {
  ASSERT_TRUE(InitialiseWeights(parameters_, 3, 0.5, backend_.get()).ok());
  EXPECT_THAT(Master("model.norm.weight"), ::testing::Each(1.0f));
  EXPECT_THAT(Master("model.layers.0.self_attn.q_proj.bias"), ::testing::Each(0.0f));
  std::vector<float> expected(96);
  FillNormal(3, kUp, 0, absl::MakeSpan(expected));
  for (float& value : expected) value *= 0.5f;
  EXPECT_EQ(Master(kUp), expected);
}

class Export : public Weights {
 protected:
  void SetUp() override {
    root_.Write(
        "source/config.json",
        R"({"zeta": {"kept": [1e-5, null]}, "model_type": "llama", "torch_dtype": "float32",)"
        R"( "dtype": "float32", "vocab_size": 11, "eos_token_id": [3, 4], "bos_token_id": 2})");
    root_.Write("source/tokenizer.json", "{ \"any\" : \"bytes\" }\n\n");
    root_.Write("source/model.safetensors", "old weights");
    ASSERT_TRUE(InitialiseWeights(parameters_, 3, 0.5, backend_.get()).ok());
  }
  absl::Status Write(const ModelFilesOptions& model = {},
                     int64_t shard_bytes = ExportOptions().shard_bytes) {
    const absl::StatusOr<ModelFiles> files = ModelFiles::Read(root_.At("source"), model);
    CHECK(files.ok());
    return ExportWeights({.model = &*files, .shard_bytes = shard_bytes}, parameters_,
                         backend_.get(), root_.At("export"));
  }
  nlohmann::ordered_json Json(const std::string& name) {
    return nlohmann::ordered_json::parse(*ReadFile(root_.At("export/" + name), 1 << 20));
  }
  TemporaryFolder root_;
};

TEST_F(Export, KeepsEveryKeyOfTheConfigAndItsOrder) {
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Json("config.json").dump(),
            R"({"zeta":{"kept":[1e-05,null]},"model_type":"llama","torch_dtype":"bfloat16",)"
            R"("dtype":"bfloat16","vocab_size":11,"eos_token_id":[3,4],"bos_token_id":2})");
}

TEST_F(Export, RoundsMasterWeightsOnceAndWritesNoTiedHead) {
  ASSERT_TRUE(Write().ok());
  const auto file = SafetensorsFile::Open(root_.At("export/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  EXPECT_EQ(file->Find("lm_head.weight"), nullptr);
  EXPECT_EQ(file->header().tensors.size(), parameters_.layout().parameters.size());
  const TensorEntry* up = file->Find(kUp);
  ASSERT_NE(up, nullptr);
  EXPECT_THAT(up->shape, ElementsAre(12, 8));
  EXPECT_THAT(file->Find("model.norm.weight")->shape, ElementsAre(8));
  std::vector<float> stored(96);
  ASSERT_TRUE(DecodeTensor({&*file, up}, 0, absl::MakeSpan(stored)).ok());
  const std::vector<float> master = Master(kUp);
  for (size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(stored[i], kernels::ToFloat(kernels::ToBfloat16(master[i])));
  }
}

TEST_F(Export, CopiesTokenizerFilesByteForByte) {
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(*ReadFile(root_.At("export/tokenizer.json"), 1000), "{ \"any\" : \"bytes\" }\n\n");
  EXPECT_FALSE(std::filesystem::exists(root_.At("export/tokenizer_config.json")));
}

TEST_F(Export, LeavesOutATokenizerThatWasNotUsed) {
  ASSERT_TRUE(Write({.with_tokenizer = false}).ok());
  EXPECT_FALSE(std::filesystem::exists(root_.At("export/tokenizer.json")));
}

TEST_F(Export, TellsServersWhereToStop) {
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Json("generation_config.json")["eos_token_id"].dump(), "[3,4]");
  std::filesystem::remove_all(root_.At("export"));
  root_.Write("source/generation_config.json", "{\"mine\":  1}");
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(*ReadFile(root_.At("export/generation_config.json"), 100), "{\"mine\":  1}");
}

TEST_F(Export, ShardsWhatIsTooLargeForOneFile) {
  ASSERT_TRUE(Write({}, 400).ok());
  EXPECT_FALSE(std::filesystem::exists(root_.At("export/model.safetensors")));
  const auto folder = SafetensorsFolder::Open(root_.At("export"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->warnings(), ::testing::IsEmpty());
  const WeightsCheck check = CheckWeights(*folder, parameters_.layout());
  EXPECT_THAT(check.problems, ::testing::IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(root_.At("export/model-00002-of-00004.safetensors")));
}

TEST_F(Export, RefusesWeightsThatAreNotFinite) {
  const float bad = INFINITY;
  ASSERT_TRUE(backend_->CopyIn(parameters_.master() + 3, &bad, 4).ok());
  const absl::Status status = Write();
  EXPECT_TRUE(absl::IsOutOfRange(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("element 3 is inf")));
  EXPECT_FALSE(std::filesystem::exists(root_.At("export")));
}

TEST_F(Export, ReplacesNothing) {
  ASSERT_TRUE(Write().ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Write()));
}

}  // namespace
}  // namespace octavo::engine
