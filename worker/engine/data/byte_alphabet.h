// The printable stand-ins that byte-level BPE writes bytes with: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF
// stand for themselves, the other 68 bytes for U+0100 upwards in byte order. Source: the published
// encoder of GPT-2 (bytes_to_unicode).
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo::engine {

// The stand-in for `byte`, in UTF-8.
std::string ByteSymbol(uint8_t byte);

// Replaces `bytes` by what the symbols stand for; false, and `bytes` is undefined, when a character
// is no stand-in.
bool BytesOfSymbols(absl::string_view symbols, std::string* bytes);

}  // namespace octavo::engine
