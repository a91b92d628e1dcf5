#include "worker/engine/model/config.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"

namespace octavo::engine {
namespace {

using nlohmann::json;

constexpr int64_t kConfigBytesLimit = 16 << 20;
constexpr int64_t kCountLimit = int64_t{1} << 31;  // ids and positions are int32
// Far above any model there is, and low enough that the bytes of its parameters stay in int64.
constexpr int64_t kWidthLimit = int64_t{1} << 20;
constexpr int64_t kLayersLimit = 4096;
constexpr int64_t kMistralWindow = 4096;

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", parts...));
}

// Reads keys of one JSON object. A null value means an absent key.
class ConfigReader {
 public:
  explicit ConfigReader(const json& object) : object_(object) {}

  const json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  bool Has(const char* key) const { return object_.contains(key); }

  // A count in [1, limit].
  absl::StatusOr<int64_t> Count(const char* key, int64_t limit = kCountLimit) const {
    const json* value = Find(key);
    if (value == nullptr) return Refuse("\"", key, "\" is missing; write a positive integer");
    if (!value->is_number_integer() || *value < 1 || *value > limit) {
      return Refuse("\"", key, "\" is ", value->dump(), "; write an integer in [1, ", limit, "]");
    }
    return value->get<int64_t>();
  }
  absl::StatusOr<int64_t> CountOr(const char* key, int64_t otherwise,
                                  int64_t limit = kCountLimit) const {
    if (Find(key) == nullptr) return otherwise;
    return Count(key, limit);
  }

  // A finite number above 0.
  absl::StatusOr<double> Positive(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr) return Refuse("\"", key, "\" is missing; write a positive number");
    if (!value->is_number() || !(value->get<double>() > 0) || std::isinf(value->get<double>())) {
      return Refuse("\"", key, "\" is ", value->dump(), "; write a positive number");
    }
    return value->get<double>();
  }
  absl::StatusOr<double> PositiveOr(const char* key, double otherwise) const {
    if (Find(key) == nullptr) return otherwise;
    return Positive(key);
  }

  absl::StatusOr<bool> BoolOr(const char* key, bool otherwise) const {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      return Refuse("\"", key, "\" is ", value->dump(), "; write true or false");
    }
    return value->get<bool>();
  }

  absl::StatusOr<std::string> StringOr(const char* key, const std::string& otherwise) const {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) return Refuse("\"", key, "\" is ", value->dump(), "; write a string");
    return value->get<std::string>();
  }

  // Refuses a key that is present with any value but `supported`.
  absl::Status Only(const char* key, const json& supported) const {
    const json* value = Find(key);
    if (value == nullptr || *value == supported) return absl::OkStatus();
    return Refuse("\"", key, "\" is ", value->dump(), "; only ", supported.dump(), " is supported");
  }

 private:
  const json& object_;
};

absl::Status ReadHeads(const ConfigReader& reader, ModelShape* shape) {
  ASSIGN_OR_RETURN(shape->heads, reader.Count("num_attention_heads", kWidthLimit));
  ASSIGN_OR_RETURN(shape->kv_heads,
                   reader.CountOr("num_key_value_heads", shape->heads, kWidthLimit));
  if (shape->heads % shape->kv_heads != 0) {
    return Refuse("\"num_key_value_heads\" ", shape->kv_heads,
                  " does not divide \"num_attention_heads\" ", shape->heads);
  }
  if (reader.Find("head_dim") == nullptr && shape->hidden % shape->heads != 0) {
    return Refuse("\"num_attention_heads\" ", shape->heads, " does not divide \"hidden_size\" ",
                  shape->hidden, " and there is no \"head_dim\"");
  }
  ASSIGN_OR_RETURN(shape->head_dim,
                   reader.CountOr("head_dim", shape->hidden / shape->heads, kWidthLimit));
  if (shape->q_columns() > kWidthLimit) {
    return Refuse("\"num_attention_heads\" ", shape->heads, " times head_dim ", shape->head_dim,
                  " is above ", kWidthLimit);
  }
  if (shape->head_dim % 2 != 0) {
    return Refuse("head_dim ", shape->head_dim, " is odd; rotary positions rotate pairs");
  }
  return absl::OkStatus();
}

absl::Status ReadShape(const ConfigReader& reader, const std::string& model_type,
                       ModelShape* shape) {
  ASSIGN_OR_RETURN(shape->vocabulary, reader.Count("vocab_size"));
  ASSIGN_OR_RETURN(shape->hidden, reader.Count("hidden_size", kWidthLimit));
  ASSIGN_OR_RETURN(shape->intermediate, reader.Count("intermediate_size", kWidthLimit));
  ASSIGN_OR_RETURN(shape->layers, reader.Count("num_hidden_layers", kLayersLimit));
  ASSIGN_OR_RETURN(shape->tied, reader.BoolOr("tie_word_embeddings", false));
  shape->qkv_bias = model_type == "qwen2";  // has no key: its modelling code always adds them
  shape->qk_norm = model_type == "qwen3";
  return ReadHeads(reader, shape);
}

absl::Status ReadLlama3Scaling(const ConfigReader& reader, RopeConfig* rope) {
  rope->scaling = RopeConfig::Scaling::kLlama3;
  ASSIGN_OR_RETURN(rope->factor, reader.Positive("factor"));
  ASSIGN_OR_RETURN(rope->low_frequency_factor, reader.Positive("low_freq_factor"));
  ASSIGN_OR_RETURN(rope->high_frequency_factor, reader.Positive("high_freq_factor"));
  ASSIGN_OR_RETURN(rope->original_max_positions, reader.Count("original_max_position_embeddings"));
  if (rope->high_frequency_factor <= rope->low_frequency_factor) {
    return Refuse("\"high_freq_factor\" ", rope->high_frequency_factor,
                  " must be above \"low_freq_factor\" ", rope->low_frequency_factor);
  }
  return absl::OkStatus();
}

absl::Status ReadYarnScaling(const ConfigReader& reader, RopeConfig* rope) {
  rope->scaling = RopeConfig::Scaling::kYarn;
  ASSIGN_OR_RETURN(rope->factor, reader.Positive("factor"));
  ASSIGN_OR_RETURN(rope->original_max_positions, reader.Count("original_max_position_embeddings"));
  ASSIGN_OR_RETURN(rope->beta_fast, reader.PositiveOr("beta_fast", rope->beta_fast));
  ASSIGN_OR_RETURN(rope->beta_slow, reader.PositiveOr("beta_slow", rope->beta_slow));
  const double usual = rope->factor > 1 ? 0.1 * std::log(rope->factor) + 1 : 1;
  ASSIGN_OR_RETURN(rope->attention_factor, reader.PositiveOr("attention_factor", usual));
  if (rope->beta_fast <= rope->beta_slow) {
    return Refuse("\"beta_fast\" ", rope->beta_fast, " must be above \"beta_slow\" ",
                  rope->beta_slow);
  }
  RETURN_IF_ERROR(reader.Only("truncate", true));
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    if (reader.Find(key) != nullptr) return Refuse("\"", key, "\" of YaRN is not supported");
  }
  return absl::OkStatus();
}

// transformers 4 has rope_theta beside rope_scaling (null, or with "rope_type" or the older
// "type"); transformers 5 puts all of it into rope_parameters.
absl::StatusOr<RopeConfig> ReadRope(const ConfigReader& reader) {
  RopeConfig rope;
  RETURN_IF_ERROR(reader.Only("rope_interleaved", false));
  RETURN_IF_ERROR(reader.Only("partial_rotary_factor", 1.0));
  const char* key = reader.Find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const json* scaling = reader.Find(key);
  const json empty = json::object();
  if (scaling != nullptr && !scaling->is_object()) {
    return Refuse("\"", key, "\" is ", scaling->dump(), "; write an object or null");
  }
  const ConfigReader inner(scaling != nullptr ? *scaling : empty);
  ASSIGN_OR_RETURN(const double outer_theta, reader.PositiveOr("rope_theta", rope.theta));
  ASSIGN_OR_RETURN(rope.theta, inner.PositiveOr("rope_theta", outer_theta));
  RETURN_IF_ERROR(inner.Only("partial_rotary_factor", 1.0));

  ASSIGN_OR_RETURN(const std::string old_type, inner.StringOr("type", "default"));
  ASSIGN_OR_RETURN(const std::string type, inner.StringOr("rope_type", old_type));
  if (type == "default") return rope;
  if (type == "llama3") {
    RETURN_IF_ERROR(ReadLlama3Scaling(inner, &rope));
  } else if (type == "yarn") {
    RETURN_IF_ERROR(ReadYarnScaling(inner, &rope));
  } else {
    return Refuse("RoPE scaling \"", type, "\" in \"", key,
                  "\" is not supported; supported: \"default\", \"llama3\", \"yarn\"");
  }
  return rope;
}

// Mistral windows every layer; Qwen windows those from max_window_layers on, which we do not have.
absl::StatusOr<int64_t> ReadSlidingWindow(const ConfigReader& reader, const std::string& model_type,
                                          int64_t max_positions) {
  if (model_type != "mistral") {
    RETURN_IF_ERROR(reader.Only("use_sliding_window", false));
    const json* types = reader.Find("layer_types");
    if (types == nullptr) return 0;
    for (const json& type : *types) {
      if (type != "full_attention") {
        return Refuse("\"layer_types\" holds ", type.dump(),
                      "; only \"full_attention\" is supported");
      }
    }
    return 0;
  }
  // Null means no window; an absent key means what MistralConfig then takes.
  const int64_t otherwise = reader.Has("sliding_window") ? 0 : kMistralWindow;
  ASSIGN_OR_RETURN(const int64_t window, reader.CountOr("sliding_window", otherwise));
  return window < max_positions ? window : 0;
}

absl::Status RefuseUnsupported(const ConfigReader& reader) {
  ASSIGN_OR_RETURN(const std::string activation, reader.StringOr("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return Refuse("\"hidden_act\" is \"", activation, "\"; only \"silu\" is supported");
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (const json* experts = reader.Find(key); experts != nullptr) {
      return Refuse("\"", key, "\" is ", experts->dump(),
                    "; mixtures of experts are not supported");
    }
  }
  if (reader.Find("quantization_config") != nullptr) {
    return Refuse(
        "\"quantization_config\": quantised folders are not supported; give the BF16 or FP32 "
        "weights");
  }
  RETURN_IF_ERROR(reader.Only("attention_bias", false));
  RETURN_IF_ERROR(reader.Only("mlp_bias", false));
  return reader.Only("attention_dropout", 0.0);
}

// Above 2^63 the parser keeps a number as unsigned, and reading it as signed would wrap.
bool IsTokenId(const json& id) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  return id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() <= kMost);
}

absl::Status ReadTokenIds(const ConfigReader& reader, ModelConfig* config) {
  if (const json* bos = reader.Find("bos_token_id"); bos != nullptr) {
    if (!IsTokenId(*bos)) {
      return Refuse("\"bos_token_id\" is ", bos->dump(), "; write an integer");
    }
    config->bos_token_id = bos->get<int64_t>();
  }
  const json* eos = reader.Find("eos_token_id");
  if (eos == nullptr) return absl::OkStatus();
  for (const json& id : eos->is_array() ? *eos : json::array({*eos})) {
    if (!IsTokenId(id)) {
      return Refuse("\"eos_token_id\" is ", eos->dump(), "; write an integer or a list of them");
    }
    config->eos_token_ids.push_back(id.get<int64_t>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseStrictJson(text, "config.json"));
  const ConfigReader reader(document);
  ModelConfig config;
  ASSIGN_OR_RETURN(config.model_type, reader.StringOr("model_type", ""));
  if (config.model_type != "llama" && config.model_type != "mistral" &&
      config.model_type != "qwen2" && config.model_type != "qwen3") {
    return Refuse("\"model_type\" is \"", config.model_type,
                  "\"; supported: \"llama\", \"mistral\", \"qwen2\", \"qwen3\"");
  }
  RETURN_IF_ERROR(RefuseUnsupported(reader));
  RETURN_IF_ERROR(ReadShape(reader, config.model_type, &config.shape));
  ASSIGN_OR_RETURN(config.rope, ReadRope(reader));
  ASSIGN_OR_RETURN(config.rms_norm_epsilon, reader.Positive("rms_norm_eps"));
  ASSIGN_OR_RETURN(config.max_positions, reader.Count("max_position_embeddings"));
  ASSIGN_OR_RETURN(config.initializer_range,
                   reader.PositiveOr("initializer_range", config.initializer_range));
  ASSIGN_OR_RETURN(config.sliding_window,
                   ReadSlidingWindow(reader, config.model_type, config.max_positions));
  RETURN_IF_ERROR(ReadTokenIds(reader, &config));
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesLimit));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), folder);
  return config;
}

}  // namespace octavo::engine
