#include "worker/engine/data/byte_level_tokenizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/data/utf8.h"

namespace octavo::engine {
namespace {

// Text that is no UTF-8 stays as it is: normalising would replace its bytes.
std::string NormalizeNfc(absl::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(error);
  CHECK(U_SUCCESS(error));
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  if (nfc->isNormalizedUTF8(piece, error) || FindInvalidUtf8(text) != absl::string_view::npos) {
    return std::string(text);
  }
  std::string normalized;
  icu::StringByteSink<std::string> sink(&normalized);
  nfc->normalizeUTF8(0, piece, sink, nullptr, error);
  CHECK(U_SUCCESS(error));
  return normalized;
}

}  // namespace

ByteLevelTokenizer::ByteLevelTokenizer(ByteLevelParts parts) : parts_(std::move(parts)) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : parts_.added_tokens) {
    if (token.normalized) {
      token.content = Normalize(token.content);
      normalized.push_back(std::move(token));
    } else {
      raw.push_back(std::move(token));
    }
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
  return ReplaceInvalidUtf8(bytes);
}

}  // namespace octavo::engine
