// General categories of Unicode 16 as pre-tokenizers ask for them.
#pragma once

#include <cstdint>

namespace octavo::engine {

enum CharacterClass : uint8_t {
  kUppercase = 1 << 0,    // Lu
  kTitlecase = 1 << 1,    // Lt
  kModifier = 1 << 2,     // Lm
  kOtherLetter = 1 << 3,  // Lo
  kLowercase = 1 << 4,    // Ll
  kMark = 1 << 5,         // M
  kNumber = 1 << 6,       // N
  kSpace = 1 << 7,        // White_Space
  kLetter = kUppercase | kTitlecase | kModifier | kOtherLetter | kLowercase,
};

// A set of CharacterClass; empty for every other character and for -1, a byte that is none.
uint8_t ClassOf(int32_t code_point);

// A number by Unicode 17, which the `Digits` pre-tokenizer of the reference knows while its regex
// engine is at 16.
bool IsDigitOfUnicode17(int32_t code_point);

// \w of UTS #18: Alphabetic, M, Nd, Pc or Join_Control.
bool IsWordCharacter(int32_t code_point);

}  // namespace octavo::engine
