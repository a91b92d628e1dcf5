// One row of JSON of which a single text is wanted.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo::engine {

struct JsonRow {
  // Of a row that cannot be used: a short name to count by, the place and what is wrong. Empty
  // reason: the row is good.
  std::string reason;
  int64_t column = 0;  // byte in the row, from 1; 0: the row as a whole
  std::string message;

  std::string text;
  bool converted = false;     // from a number, in the spelling of the file
  int64_t scanned_bytes = 0;  // at most the length of the row: no byte is parsed twice
};

// Deeper rows are refused.
inline constexpr size_t kDeepestJson = 256;

// The string at `text_field` of an object; null counts as absent. Refuses what JSON readers
// disagree about: the same key twice in an object, at any depth, and text that is not UTF-8. A
// number may have any size.
JsonRow ParseJsonRow(absl::string_view row, const std::string& text_field);

}  // namespace octavo::engine
