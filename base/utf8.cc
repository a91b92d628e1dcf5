#include "base/utf8.h"

#include <cstdint>

namespace octavo {

size_t Utf8SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  const auto in = [&](size_t i, unsigned low, unsigned high) {
    return byte(i) >= low && byte(i) <= high;
  };
  const auto tail = [&](size_t i) { return in(i, 0x80, 0xBF); };
  if (in(0, 0x01, 0x7F)) return 1;
  if (in(0, 0xC2, 0xDF)) return tail(1) ? 2 : 0;
  if (in(0, 0xE0, 0xEF)) {
    const bool second = byte(0) == 0xE0   ? in(1, 0xA0, 0xBF)
                        : byte(0) == 0xED ? in(1, 0x80, 0x9F)  // no surrogates
                                          : tail(1);
    return second && tail(2) ? 3 : 0;
  }
  if (in(0, 0xF0, 0xF4)) {
    const bool second = byte(0) == 0xF0   ? in(1, 0x90, 0xBF)
                        : byte(0) == 0xF4 ? in(1, 0x80, 0x8F)  // up to U+10FFFF
                                          : tail(1);
    return second && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

size_t FindMalformedUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8SequenceLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return absl::string_view::npos;
}

}  // namespace octavo
