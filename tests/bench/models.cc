#include "tests/bench/models.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/split_mix.h"
#include "base/status.h"

namespace octavo::bench {
namespace {

const std::map<std::string, nlohmann::json>& Models() {
  static const auto& models = *new std::map<std::string, nlohmann::json>{
      {"smollm2-135m",
       {{"model_type", "llama"},
        {"vocab_size", 49152},
        {"hidden_size", 576},
        {"intermediate_size", 1536},
        {"num_hidden_layers", 30},
        {"num_attention_heads", 9},
        {"num_key_value_heads", 3},
        {"rope_theta", 100000.0}}},
      {"qwen-135m",
       {{"model_type", "qwen2"},
        {"vocab_size", 151936},
        {"hidden_size", 512},
        {"intermediate_size", 2816},
        {"num_hidden_layers", 12},
        {"num_attention_heads", 8},
        {"num_key_value_heads", 2},
        {"rope_theta", 1000000.0}}},
      {"quickstart",
       {{"model_type", "qwen2"},
        {"vocab_size", 320},
        {"hidden_size", 128},
        {"intermediate_size", 384},
        {"num_hidden_layers", 2},
        {"num_attention_heads", 4},
        {"num_key_value_heads", 2},
        {"head_dim", 64},
        {"rope_theta", 10000.0}}},
  };
  return models;
}

}  // namespace

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const auto& [name, config] : Models()) names.push_back(name);
  return names;
}

absl::Status WriteModelConfig(const std::string& folder, const std::string& name) {
  nlohmann::json config = Models().at(name);
  const bool qwen = config["model_type"] == "qwen2";
  config["architectures"] = {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"};
  config.update({{"hidden_act", "silu"},
                 {"rms_norm_eps", 1e-6},
                 {"max_position_embeddings", 8192},
                 {"initializer_range", 0.02},
                 {"tie_word_embeddings", true},
                 {"bos_token_id", 256},
                 {"eos_token_id", 256},
                 {"torch_dtype", "bfloat16"}});
  RETURN_IF_ERROR(MakeFolders(folder));
  return WriteFileAtomically(folder + "/config.json", config.dump(2) + "\n");
}

absl::Status WriteRandomText(const std::string& folder) {
  constexpr size_t kBytes = 1 << 20;
  uint64_t random = 1;
  std::string text;
  while (text.size() < kBytes) {
    const uint64_t number = NextSplitMix(&random);
    text.push_back(static_cast<char>('a' + number % 26));
    if (number >> 53 == 0) text += "\n\n";  // one of 2048
  }
  RETURN_IF_ERROR(MakeFolders(folder));
  return WriteFileAtomically(folder + "/text.txt", text);
}

}  // namespace octavo::bench
