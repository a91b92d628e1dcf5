#include "base/utf8.h"

namespace octavo {
namespace {

// Table 3-7 of the Unicode standard: how many bytes follow a lead byte, and which second bytes may.
struct Lead {
  int following = -1;
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {0};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Character DecodeUtf8(absl::string_view text, size_t at) {
  const uint8_t first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {first, 1};
  const Lead lead = LeadOf(first);
  if (lead.following < 0) return {};
  int32_t code_point = first & (0x3F >> lead.following);
  for (int i = 1; i <= lead.following; ++i) {
    if (at + i >= text.size()) return {-1, static_cast<size_t>(i)};
    const uint8_t byte = static_cast<uint8_t>(text[at + i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {-1, static_cast<size_t>(i)};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {code_point, static_cast<size_t>(lead.following) + 1};
}

size_t FindMalformedUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text, at);
    if (character.code_point < 0) return at;
    at += character.length;
  }
  return absl::string_view::npos;
}

void AppendUtf8(int32_t code_point, std::string* out) {
  const auto put = [out](int32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

std::string ReplaceMalformedUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text, at);
    if (character.code_point < 0) {
      out += "\xEF\xBF\xBD";
    } else {
      out.append(text.data() + at, character.length);
    }
    at += character.length;
  }
  return out;
}

}  // namespace octavo
