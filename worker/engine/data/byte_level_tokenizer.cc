#include "worker/engine/data/byte_level_tokenizer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "worker/engine/data/nfc.h"

namespace octavo::engine {

ByteLevelTokenizer::ByteLevelTokenizer(ByteLevelParts parts) : parts_(std::move(parts)) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (const AddedToken& token : parts_.added_tokens) {
    (token.normalized ? normalized : raw).push_back(token);
  }
  raw_tokens_ = AddedTokenMatcher(std::move(raw));
  normalized_tokens_ = AddedTokenMatcher(std::move(normalized));
}

std::string ByteLevelTokenizer::Normalize(absl::string_view text) const {
  return parts_.normalize_nfc ? NormalizeNfc(text) : std::string(text);
}

void ByteLevelTokenizer::Encode(absl::string_view text, const EncodeOptions& options,
                                std::vector<int32_t>* ids) const {
  if (!options.added_tokens) return EncodeNormalized(Normalize(text), ids);
  const auto put = [ids](int32_t id) { ids->push_back(id); };
  raw_tokens_.Split(
      text,
      [&](absl::string_view piece) {
        const std::string normalized = Normalize(piece);
        normalized_tokens_.Split(
            normalized, [&](absl::string_view rest) { EncodeNormalized(rest, ids); }, put);
      },
      put);
}

void ByteLevelTokenizer::EncodeNormalized(absl::string_view text, std::vector<int32_t>* ids) const {
  if (!text.empty()) EncodeFromStage(0, text, ids);
}

void ByteLevelTokenizer::EncodeFromStage(size_t stage, absl::string_view text,
                                         std::vector<int32_t>* ids) const {
  if (stage == parts_.stages.size()) {
    lost_bytes_.fetch_add(parts_.encoder.Encode(text, ids), std::memory_order_relaxed);
    return;
  }
  const PreTokenizerStage& current = parts_.stages[stage];
  std::string prefixed;
  if (current.add_prefix_space && !absl::StartsWith(text, " ")) {
    prefixed = absl::StrCat(" ", text);
    text = prefixed;
  }
  if (current.splitter == nullptr) return EncodeFromStage(stage + 1, text, ids);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = current.splitter->PieceEnd(text, begin);
    EncodeFromStage(stage + 1, text.substr(begin, end - begin), ids);
    begin = end;
  }
}

std::string ByteLevelTokenizer::Decode(const std::vector<int32_t>& ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary_size()) bytes += parts_.token_bytes[id];
  }
  return ReplaceMalformedUtf8(bytes);
}

}  // namespace octavo::engine
