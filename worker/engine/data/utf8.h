// UTF-8 as the readers and tokenizers see it: RFC 3629, so no surrogates and nothing above
// U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo::engine {

struct Utf8Character {
  int32_t code_point = -1;  // -1: the bytes are no character
  size_t length = 1;        // of the character, or of the maximal broken part to replace by U+FFFD
};

// The character that starts at text[at]; `at` is inside the text.
Utf8Character DecodeUtf8(absl::string_view text, size_t at);

// Offset of the first byte that is not part of a character; npos when all are.
size_t FindInvalidUtf8(absl::string_view text);

void AppendUtf8(int32_t code_point, std::string* out);

// One U+FFFD for each maximal broken part, the practice that W3C's Encoding standard describes.
std::string ReplaceInvalidUtf8(absl::string_view text);

}  // namespace octavo::engine
