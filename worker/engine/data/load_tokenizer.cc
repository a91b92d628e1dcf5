#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"
#include "worker/engine/data/tokenizer.h"

namespace octavo::engine {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostTokenizerBytes = int64_t{256} << 20;
constexpr int64_t kMostConfigBytes = int64_t{16} << 20;

// Null when the file is absent.
absl::StatusOr<Json> ReadJson(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMostConfigBytes);
  if (absl::IsNotFound(text.status())) return Json();
  RETURN_IF_ERROR(text.status());
  return ParseStrictJson(*text, path);
}

// eos_token_id as a number or the first of a list; -1 when there is none.
int32_t EndTokenId(const Json& config) {
  if (!config.is_object() || !config.contains("eos_token_id")) return -1;
  const Json& value = config["eos_token_id"];
  const Json& first = value.is_array() && !value.empty() ? value[0] : value;
  if (!first.is_number_integer() || first < 0 || first > INT32_MAX) return -1;
  return first.get<int32_t>();
}

// Empty when there is none.
std::string EndTokenText(const Json& config) {
  if (!config.is_object() || !config.contains("eos_token")) return "";
  const Json& value = config["eos_token"];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return "";
}

absl::StatusOr<EndOfDocument> FindEndOfDocument(const std::string& folder) {
  for (const char* const name : {"/generation_config.json", "/config.json"}) {
    ASSIGN_OR_RETURN(const Json config, ReadJson(folder + name));
    const int32_t id = EndTokenId(config);
    if (id >= 0) return EndOfDocument(id);
  }
  ASSIGN_OR_RETURN(const Json config, ReadJson(folder + "/tokenizer_config.json"));
  std::string text = EndTokenText(config);
  if (!text.empty()) return EndOfDocument(std::move(text));
  return absl::InvalidArgumentError(
      absl::StrCat(folder,
                   " does not say which token ends a document: give eos_token_id in "
                   "generation_config.json or config.json, or eos_token in tokenizer_config.json"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostTokenizerBytes));
  ASSIGN_OR_RETURN(const EndOfDocument end_of_document, FindEndOfDocument(folder));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizerJson(json, end_of_document);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), folder);
  return tokenizer;
}

}  // namespace octavo::engine
