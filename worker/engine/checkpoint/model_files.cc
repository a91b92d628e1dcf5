#include "worker/engine/checkpoint/model_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"

namespace octavo::engine {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr int64_t kMostConfigBytes = int64_t{16} << 20;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "added_tokens.json",
                                           "chat_template.jinja",
                                           "chat_template.json"};
constexpr const char* kLicenceFiles[] = {"LICENSE", "LICENSE.txt", "LICENSE.md",
                                         "LICENCE", "NOTICE",      "USE_POLICY.md"};

}  // namespace

absl::StatusOr<ModelFiles> ModelFiles::Read(const std::string& folder,
                                            const ModelFilesOptions& options) {
  ModelFiles result;
  int64_t left = kMostBytes;
  // `limit_bytes`: of this file alone. A file that is not there is left out.
  const auto read = [&](const std::string& name, int64_t limit_bytes) -> absl::Status {
    absl::StatusOr<std::string> content =
        ReadFile(absl::StrCat(folder, "/", name), std::min(limit_bytes, left));
    if (absl::IsNotFound(content.status())) return absl::OkStatus();
    RETURN_IF_ERROR(content.status());
    left -= static_cast<int64_t>(content->size());
    result.files_.push_back({name, *std::move(content)});
    return absl::OkStatus();
  };
  for (const char* name : {kConfig, kGenerationConfig}) {
    RETURN_IF_ERROR(read(name, kMostConfigBytes));
    const std::string* text = result.Find(name);
    // Ordered, as the export will read it: whatever it may refuse is refused here.
    if (text != nullptr) {
      RETURN_IF_ERROR(ParseOrderedJson(*text, absl::StrCat(folder, "/", name)).status());
    }
  }
  if (result.Find(kConfig) == nullptr) {
    return absl::NotFoundError(absl::StrCat("reading ", folder, "/", kConfig, ": it is not there"));
  }
  for (const char* name : kLicenceFiles) RETURN_IF_ERROR(read(name, kMostBytes));
  if (options.with_tokenizer) {
    for (const char* name : kTokenizerFiles) RETURN_IF_ERROR(read(name, kMostBytes));
  }
  return result;
}

const std::string* ModelFiles::Find(absl::string_view name) const {
  for (const ModelFile& file : files_) {
    if (file.name == name) return &file.content;
  }
  return nullptr;
}

}  // namespace octavo::engine
