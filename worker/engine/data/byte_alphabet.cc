#include "worker/engine/data/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace octavo::engine {
namespace {

constexpr int32_t kFirstReplacement = 0x100;
constexpr int32_t kReplacements = 68;

bool StandsForItself(int32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<int32_t, 256> symbol_of{};
  std::array<int16_t, kFirstReplacement + kReplacements> byte_of{};
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  int32_t next = kFirstReplacement;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const int32_t symbol = StandsForItself(byte) ? byte : next++;
    alphabet.symbol_of[byte] = symbol;
    alphabet.byte_of[symbol] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

std::string ByteSymbol(uint8_t byte) {
  std::string symbol;
  AppendUtf8(TheAlphabet().symbol_of[byte], &symbol);
  return symbol;
}

bool BytesOfSymbols(absl::string_view symbols, std::string* bytes) {
  const Alphabet& alphabet = TheAlphabet();
  bytes->clear();
  for (size_t at = 0; at < symbols.size();) {
    const Utf8Character c = DecodeUtf8(symbols, at);
    if (c.code_point < 0 || c.code_point >= static_cast<int32_t>(alphabet.byte_of.size())) {
      return false;
    }
    const int16_t byte = alphabet.byte_of[c.code_point];
    if (byte < 0) return false;
    bytes->push_back(static_cast<char>(byte));
    at += c.length;
  }
  return true;
}

}  // namespace octavo::engine
