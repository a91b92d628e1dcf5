#include "worker/engine/model/config.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace octavo::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json SmolLm2() {
  return json::parse(R"({
    "model_type": "llama", "hidden_act": "silu", "vocab_size": 49152, "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "max_position_embeddings": 8192,
    "rope_theta": 100000, "rope_scaling": null, "rope_interleaved": false,
    "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "pretraining_tp": 1})");
}

ModelConfig Parse(const json& document) {
  absl::StatusOr<ModelConfig> config = ParseModelConfig(document.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

std::string ErrorOf(const json& document) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(document.dump());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(ParseModelConfig, ReadsALlamaFolder) {
  const ModelConfig config = Parse(SmolLm2());
  EXPECT_EQ(config.shape.vocabulary, 49152);
  EXPECT_EQ(config.shape.q_columns(), 576);
  EXPECT_EQ(config.shape.kv_columns(), 192);
  EXPECT_FALSE(config.shape.qkv_bias);
  EXPECT_TRUE(config.shape.tied);
  EXPECT_EQ(config.rope.theta, 100000);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-5);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

TEST(ParseModelConfig, TakesTheDefaultsThatOldFoldersLeaveOut) {
  json document = SmolLm2();
  document.erase("num_key_value_heads");
  document.erase("rope_theta");
  document.erase("tie_word_embeddings");
  document["head_dim"] = nullptr;
  const ModelConfig config = Parse(document);
  EXPECT_EQ(config.shape.kv_heads, 9);
  EXPECT_EQ(config.shape.head_dim, 64);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_FALSE(config.shape.tied);
}

TEST(ParseModelConfig, HeadsTimesHeadDimMayDifferFromHidden) {
  json document = SmolLm2();
  document["model_type"] = "qwen3";
  document["head_dim"] = 128;
  const ModelConfig config = Parse(document);
  EXPECT_EQ(config.shape.q_columns(), 1152);
  EXPECT_TRUE(config.shape.qk_norm);
}

TEST(ParseModelConfig, AddsBiasesToEveryQwen2) {
  json document = SmolLm2();
  document["model_type"] = "qwen2";
  EXPECT_TRUE(Parse(document).shape.qkv_bias);
}

TEST(ParseModelConfig, RefusesSizesThatNoModelHas) {
  json document = SmolLm2();
  document["num_hidden_layers"] = 2'000'000'000;
  EXPECT_THAT(ErrorOf(document),
              AllOf(HasSubstr("\"num_hidden_layers\" is 2000000000"), HasSubstr("[1, 4096]")));
  document = SmolLm2();
  document["hidden_size"] = 1 << 30;
  EXPECT_THAT(ErrorOf(document), AllOf(HasSubstr("hidden_size"), HasSubstr("[1, 1048576]")));
  document = SmolLm2();
  document["num_attention_heads"] = document["num_key_value_heads"] = 1 << 15;
  document["head_dim"] = 1 << 15;
  EXPECT_THAT(ErrorOf(document),
              AllOf(HasSubstr("32768 times head_dim 32768"), HasSubstr("above 1048576")));
}

TEST(ParseModelConfig, ReadsRopeInBothSpellings) {
  const json scaling = {{"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192},
                        {"rope_type", "llama3"}};
  json old_spelling = SmolLm2();
  old_spelling["rope_scaling"] = scaling;
  json new_spelling = SmolLm2();
  new_spelling.erase("rope_theta");
  new_spelling.erase("rope_scaling");
  new_spelling["rope_parameters"] = scaling;
  new_spelling["rope_parameters"]["rope_theta"] = 100000;
  EXPECT_EQ(Parse(old_spelling).rope, Parse(new_spelling).rope);
  EXPECT_EQ(Parse(old_spelling).rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(Parse(old_spelling).rope.factor, 32);
}

TEST(ParseModelConfig, ReadsYarnAndItsUsualAttentionFactor) {
  json document = SmolLm2();
  document["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const RopeConfig rope = Parse(document).rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_NEAR(rope.attention_factor, 1.1386, 5e-5);
  document["rope_scaling"]["attention_factor"] = 1.0;
  EXPECT_EQ(Parse(document).rope.attention_factor, 1.0);
  document["rope_scaling"]["mscale"] = 0.7;
  EXPECT_THAT(ErrorOf(document), HasSubstr("mscale"));
}

TEST(ParseModelConfig, KeepsAWindowThatIsShorterThanThePositions) {
  json document = SmolLm2();
  document["model_type"] = "mistral";
  document["sliding_window"] = 4096;
  EXPECT_EQ(Parse(document).sliding_window, 4096);
  document["sliding_window"] = 8192;
  EXPECT_EQ(Parse(document).sliding_window, 0);
  document["sliding_window"] = nullptr;
  EXPECT_EQ(Parse(document).sliding_window, 0);
}

TEST(ParseModelConfig, AcceptsOneOrManyEndTokens) {
  json document = SmolLm2();
  document["eos_token_id"] = {128001, 128008};
  EXPECT_THAT(Parse(document).eos_token_ids, ElementsAre(128001, 128008));
}

struct Refusal {
  const char* key;
  json value;
  const char* message;  // a part of it
};

TEST(ParseModelConfig, RefusesWhatItCannotRunAndNamesIt) {
  const Refusal refusals[] = {
      {"model_type", "qwen2_moe", "qwen2_moe"},
      {"model_type", nullptr, "supported: \"llama\""},
      {"hidden_act", "gelu", "gelu"},
      {"num_local_experts", 8, "mixtures of experts"},
      {"rope_scaling", {{"rope_type", "longrope"}, {"factor", 4.0}}, "longrope"},
      {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}, "linear"},
      {"rope_interleaved", true, "rope_interleaved"},
      {"use_sliding_window", true, "use_sliding_window"},
      {"layer_types", {"full_attention", "sliding_attention"}, "sliding_attention"},
      {"attention_bias", true, "attention_bias"},
      {"mlp_bias", true, "mlp_bias"},
      {"attention_dropout", 0.1, "attention_dropout"},
      {"quantization_config", {{"quant_method", "fp8"}}, "quantised"},
      {"num_key_value_heads", 4, "does not divide"},
      {"num_attention_heads", 7, "does not divide"},
      {"head_dim", 63, "odd"},
      {"hidden_size", -5, "-5"},
      {"vocab_size", "many", "many"},
      {"rms_norm_eps", nullptr, "rms_norm_eps"},
      {"rms_norm_eps", 0, "positive"},
  };
  for (const Refusal& refusal : refusals) {
    json document = SmolLm2();
    document[refusal.key] = refusal.value;
    EXPECT_THAT(ErrorOf(document), HasSubstr(refusal.message)) << refusal.key;
  }
}

TEST(ParseModelConfig, RefusesWhatIsNotAnObject) {
  for (const char* text : {"", "[]", "{", "3", "null"}) {
    EXPECT_FALSE(ParseModelConfig(text).ok()) << text;
  }
}

TEST(ReadModelConfig, NamesTheMissingFile) {
  const absl::StatusOr<ModelConfig> config = ReadModelConfig("/nowhere");
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("/nowhere/config.json"));
}

TEST(ParseModelConfig, RefusesAKeyThatOccursTwice) {
  const absl::Status twice =
      ParseModelConfig(R"({"model_type": "llama", "hidden_size": 8, "hidden_size": 16})").status();
  EXPECT_TRUE(absl::IsInvalidArgument(twice));
  EXPECT_THAT(std::string(twice.message()),
              HasSubstr("config.json: key \"hidden_size\" occurs twice"));
}

TEST(ParseModelConfig, RefusesTokenIdsThatAreNoIntegersOf64Bits) {
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    json document = SmolLm2();
    document[key] = std::numeric_limits<uint64_t>::max();
    EXPECT_THAT(ErrorOf(document), HasSubstr("18446744073709551615"));
  }
}

}  // namespace
}  // namespace octavo::engine
