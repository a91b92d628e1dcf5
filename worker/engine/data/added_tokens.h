// Tokens that a text spells as a whole, outside the vocabulary's merges: <|im_end|> and its like.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not beside a word character
  bool left_strip = false;   // swallows white space before it
  bool right_strip = false;  // and after it
  bool normalized = false;   // looked for in normalised text
};

// Finds the leftmost of the longest tokens.
class AddedTokenMatcher {
 public:
  // Contents are not empty and occur once.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);
  AddedTokenMatcher() : AddedTokenMatcher(std::vector<AddedToken>()) {}

  // Calls text(piece) and token(id) for the parts of `text`, in order; pieces are not empty.
  void Split(absl::string_view text, absl::FunctionRef<void(absl::string_view)> on_text,
             absl::FunctionRef<void(int32_t)> on_token) const;

 private:
  const AddedToken* LongestAt(absl::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;                       // longest first
  std::array<std::vector<int32_t>, 256> by_first_byte_;  // indices into tokens_
};

}  // namespace octavo::engine
