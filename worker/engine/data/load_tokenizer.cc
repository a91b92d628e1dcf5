#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "worker/engine/data/tokenizer.h"

namespace octavo::engine {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostTokenizerBytes = int64_t{256} << 20;
constexpr int64_t kMostConfigBytes = int64_t{16} << 20;

// Null when the file is absent.
absl::StatusOr<Json> ReadJson(const std::string& path, int64_t limit_bytes) {
  absl::StatusOr<std::string> text = ReadFile(path, limit_bytes);
  if (absl::IsNotFound(text.status())) return Json();
  RETURN_IF_ERROR(text.status());
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(path + " is not a JSON object");
  return json;
}

// eos_token_id as a number or the first of a list; -1 when there is none.
int64_t EndTokenId(const Json& config) {
  if (!config.is_object() || !config.contains("eos_token_id")) return -1;
  const Json& value = config["eos_token_id"];
  const Json& first = value.is_array() && !value.empty() ? value[0] : value;
  return first.is_number_integer() ? first.get<int64_t>() : -1;
}

std::string EndTokenText(const Json& config) {
  if (!config.is_object() || !config.contains("eos_token")) return "";
  const Json& value = config["eos_token"];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return "";
}

// The id that tokenizer.json gives to `token`; -1 when it has none.
int64_t IdOf(const std::string& tokenizer_json, const std::string& token) {
  const Json json = Json::parse(tokenizer_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || token.empty()) return -1;
  if (json.contains("added_tokens")) {
    for (const Json& added : json["added_tokens"]) {
      if (added.is_object() && added.value("content", Json()) == token) {
        return added.value("id", Json(-1)).get<int64_t>();
      }
    }
  }
  const Json vocabulary = json.value(Json::json_pointer("/model/vocab"), Json());
  if (!vocabulary.is_object() || !vocabulary.contains(token)) return -1;
  return vocabulary[token].is_number_integer() ? vocabulary[token].get<int64_t>() : -1;
}

absl::StatusOr<int32_t> FindEndOfDocument(const std::string& folder,
                                          const std::string& tokenizer_json) {
  for (const char* const name : {"/generation_config.json", "/config.json"}) {
    ASSIGN_OR_RETURN(const Json config, ReadJson(folder + name, kMostConfigBytes));
    const int64_t id = EndTokenId(config);
    if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  }
  ASSIGN_OR_RETURN(const Json config,
                   ReadJson(folder + "/tokenizer_config.json", kMostConfigBytes));
  const int64_t id = IdOf(tokenizer_json, EndTokenText(config));
  if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  return absl::InvalidArgumentError(
      absl::StrCat(folder,
                   " does not say which token ends a document: give eos_token_id in "
                   "generation_config.json or config.json, or eos_token in tokenizer_config.json"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostTokenizerBytes));
  ASSIGN_OR_RETURN(const int32_t end_of_document, FindEndOfDocument(folder, json));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizerJson(json, end_of_document);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), folder);
  return tokenizer;
}

}  // namespace octavo::engine
