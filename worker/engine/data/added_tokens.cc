#include "worker/engine/data/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/utf8.h"
#include "worker/engine/data/unicode_class.h"

namespace octavo::engine {
namespace {

// Begin of the character that ends before `end`; 0 < end.
size_t PreviousCharacter(absl::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool WordBeside(absl::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const size_t previous = PreviousCharacter(text, begin);
    if (IsWordCharacter(DecodeUtf8(text, previous).code_point)) return true;
  }
  return end < text.size() && IsWordCharacter(DecodeUtf8(text, end).code_point);
}

bool IsSpaceAt(absl::string_view text, size_t at) {
  return (ClassOf(DecodeUtf8(text, at).code_point) & kSpace) != 0;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    by_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])].push_back(static_cast<int32_t>(i));
  }
}

const AddedToken* AddedTokenMatcher::LongestAt(absl::string_view text, size_t at) const {
  const absl::string_view rest = text.substr(at);
  for (const int32_t i : by_first_byte_[static_cast<uint8_t>(text[at])]) {
    if (absl::StartsWith(rest, tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

void AddedTokenMatcher::Split(absl::string_view text,
                              absl::FunctionRef<void(absl::string_view)> on_text,
                              absl::FunctionRef<void(int32_t)> on_token) const {
  size_t done = 0;  // up to here text was handed out
  for (size_t at = 0; at < text.size();) {
    const AddedToken* const token = LongestAt(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;  // a refused single word is passed over as a whole, as the reference does
    if (token->single_word && WordBeside(text, begin, end)) continue;
    if (token->left_strip) {
      while (begin > done && IsSpaceAt(text, PreviousCharacter(text, begin))) {
        begin = PreviousCharacter(text, begin);
      }
    }
    if (token->right_strip) {
      while (end < text.size() && IsSpaceAt(text, end)) end += DecodeUtf8(text, end).length;
    }
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(token->id);
    done = end;  // a token inside what right_strip swallowed comes again, as in the reference
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace octavo::engine
