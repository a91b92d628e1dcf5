#include "worker/agent/log_lines.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace octavo::agent {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
// Of a line, before repair; leaves room for the mark. Repair may triple a byte, so repaired lines
// are cut once more.
constexpr size_t kKeptBytes = kMaxLineBytes - 64;

// The longest prefix of at most `bytes` that ends between characters; `text` is well-formed.
absl::string_view CutAtCharacter(absl::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<uint8_t>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string RepairUtf8(absl::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text, at);
    const bool kept = character.code_point > 0;  // a NUL would end the line for many readers
    absl::StrAppend(&repaired, kept ? text.substr(at, character.length) : kReplacement);
    at += character.length;
  }
  return repaired;
}

std::vector<std::string> LineCutter::Add(absl::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    const absl::string_view part = bytes.substr(0, end);
    const size_t room = kKeptBytes - line_.size();
    absl::StrAppend(&line_, part.substr(0, room));
    dropped_bytes_ += part.size() - std::min(part.size(), room);
    if (end == absl::string_view::npos) break;
    // "\r\n" ends one line, and so an empty one after "\r" is none.
    if (bytes[end] == '\n' || !line_.empty()) EndLine(&lines);
    if (bytes[end] == '\r' && bytes.substr(end + 1, 1) == "\n") bytes.remove_prefix(1);
    bytes.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<std::string> LineCutter::Flush() {
  std::vector<std::string> lines;
  if (!line_.empty()) EndLine(&lines);
  return lines;
}

void LineCutter::EndLine(std::vector<std::string>* lines) {
  const std::string repaired = RepairUtf8(line_);
  const absl::string_view kept = CutAtCharacter(repaired, kKeptBytes);
  const size_t cut_bytes = dropped_bytes_ + repaired.size() - kept.size();
  lines->push_back(cut_bytes == 0 ? repaired
                                  : absl::StrCat(kept, " [cut: ", cut_bytes, " more bytes]"));
  line_.clear();
  dropped_bytes_ = 0;
}

}  // namespace octavo::agent
