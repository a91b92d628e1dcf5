// UTF-8 as RFC 3629 has it: no surrogates, nothing above U+10FFFF. U+0000 is a character like
// others; who cannot bear it looks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo {

struct Utf8Character {
  int32_t code_point = -1;  // -1: the bytes are no character
  size_t length = 1;        // of the character, or of the maximal broken part to replace by U+FFFD
};

// The character that starts at text[at]; `at` is inside the text.
Utf8Character DecodeUtf8(absl::string_view text, size_t at);

// Where the first byte lies that is not part of a character; npos: nowhere.
size_t FindMalformedUtf8(absl::string_view text);

void AppendUtf8(int32_t code_point, std::string* out);

// One U+FFFD for each maximal broken part, the practice that W3C's Encoding standard describes.
std::string ReplaceMalformedUtf8(absl::string_view text);

}  // namespace octavo
