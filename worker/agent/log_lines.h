// What a trainer writes, cut into lines that can be stored.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace octavo::agent {

inline constexpr size_t kMaxLineBytes = 8192;

// `text` with every byte that does not belong to well-formed UTF-8 (Unicode 15, table 3-7) replaced
// by U+FFFD, and NUL as well.
std::string RepairUtf8(absl::string_view text);

// One output stream. Lines end at "\n"; "\r" before it and progress bars' "\r" within are line ends
// too. A longer line is cut at a character, marked, and the rest of it is dropped.
class LineCutter {
 public:
  // The lines that `bytes` completes.
  std::vector<std::string> Add(absl::string_view bytes);
  // The line without an end, if there is one.
  std::vector<std::string> Flush();

 private:
  void EndLine(std::vector<std::string>* lines);
  std::string line_;
  size_t dropped_bytes_ = 0;
};

}  // namespace octavo::agent
