#include "worker/engine/data/unicode_class.h"

#include <unicode/uchar.h>

#include <memory>

namespace octavo::engine {
namespace {

constexpr int32_t kCodePoints = 0x110000;

struct ClassRange {
  int32_t first;
  int32_t last;
  CharacterClass character_class;
};

// Assigned by Unicode 15.1 and 16.0, which an ICU older than 76 calls unassigned. Source:
// DerivedGeneralCategory.txt of Unicode 16.0.
constexpr ClassRange kSinceUnicode15[] = {
    {0x897, 0x897, kMark},
    {0x1C89, 0x1C89, kUppercase},
    {0x1C8A, 0x1C8A, kLowercase},
    {0xA7CB, 0xA7CC, kUppercase},
    {0xA7CD, 0xA7CD, kLowercase},
    {0xA7DA, 0xA7DA, kUppercase},
    {0xA7DB, 0xA7DB, kLowercase},
    {0xA7DC, 0xA7DC, kUppercase},
    {0x105C0, 0x105F3, kOtherLetter},
    {0x10D40, 0x10D49, kNumber},
    {0x10D4A, 0x10D4D, kOtherLetter},
    {0x10D4E, 0x10D4E, kModifier},
    {0x10D4F, 0x10D4F, kOtherLetter},
    {0x10D50, 0x10D65, kUppercase},
    {0x10D69, 0x10D6D, kMark},
    {0x10D6F, 0x10D6F, kModifier},
    {0x10D70, 0x10D85, kLowercase},
    {0x10EC2, 0x10EC4, kOtherLetter},
    {0x10EFC, 0x10EFC, kMark},
    {0x11380, 0x11389, kOtherLetter},
    {0x1138B, 0x1138B, kOtherLetter},
    {0x1138E, 0x1138E, kOtherLetter},
    {0x11390, 0x113B5, kOtherLetter},
    {0x113B7, 0x113B7, kOtherLetter},
    {0x113B8, 0x113C0, kMark},
    {0x113C2, 0x113C2, kMark},
    {0x113C5, 0x113C5, kMark},
    {0x113C7, 0x113CA, kMark},
    {0x113CC, 0x113D0, kMark},
    {0x113D1, 0x113D1, kOtherLetter},
    {0x113D2, 0x113D2, kMark},
    {0x113D3, 0x113D3, kOtherLetter},
    {0x113E1, 0x113E2, kMark},
    {0x116D0, 0x116E3, kNumber},
    {0x11BC0, 0x11BE0, kOtherLetter},
    {0x11BF0, 0x11BF9, kNumber},
    {0x11F5A, 0x11F5A, kMark},
    {0x13460, 0x143FA, kOtherLetter},
    {0x16100, 0x1611D, kOtherLetter},
    {0x1611E, 0x1612F, kMark},
    {0x16130, 0x16139, kNumber},
    {0x16D40, 0x16D42, kModifier},
    {0x16D43, 0x16D6A, kOtherLetter},
    {0x16D6B, 0x16D6C, kModifier},
    {0x16D70, 0x16D79, kNumber},
    {0x18CFF, 0x18CFF, kOtherLetter},
    {0x1CCF0, 0x1CCF9, kNumber},
    {0x1E5D0, 0x1E5ED, kOtherLetter},
    {0x1E5EE, 0x1E5EF, kMark},
    {0x1E5F0, 0x1E5F0, kOtherLetter},
    {0x1E5F1, 0x1E5FA, kNumber},
    {0x2EBF0, 0x2EE5D, kOtherLetter},
};

// The same for IsDigitOfUnicode17: Tolong Siki digits and Chinese small ideographic numbers.
constexpr ClassRange kSinceUnicode16[] = {
    {0x11DE0, 0x11DE9, kNumber},
    {0x16FF4, 0x16FF6, kNumber},
};

uint8_t CategoryClass(int32_t code_point) {
  switch (u_charType(code_point)) {
    case U_UPPERCASE_LETTER:
      return kUppercase;
    case U_TITLECASE_LETTER:
      return kTitlecase;
    case U_MODIFIER_LETTER:
      return kModifier;
    case U_OTHER_LETTER:
      return kOtherLetter;
    case U_LOWERCASE_LETTER:
      return kLowercase;
    case U_NON_SPACING_MARK:
    case U_ENCLOSING_MARK:
    case U_COMBINING_SPACING_MARK:
      return kMark;
    case U_DECIMAL_DIGIT_NUMBER:
    case U_LETTER_NUMBER:
    case U_OTHER_NUMBER:
      return kNumber;
    default:
      return u_hasBinaryProperty(code_point, UCHAR_WHITE_SPACE) ? kSpace : 0;
  }
}

// One byte per code point: classifying is one load, which the splitters do for every character.
const uint8_t* MakeTable() {
  uint8_t* const table = new uint8_t[kCodePoints];
  for (int32_t c = 0; c < kCodePoints; ++c) table[c] = CategoryClass(c);
  for (const ClassRange& range : kSinceUnicode15) {
    for (int32_t c = range.first; c <= range.last; ++c) table[c] = range.character_class;
  }
  return table;
}

}  // namespace

uint8_t ClassOf(int32_t code_point) {
  static const uint8_t* const table = MakeTable();
  return code_point < 0 ? 0 : table[code_point];
}

bool IsDigitOfUnicode17(int32_t code_point) {
  if ((ClassOf(code_point) & kNumber) != 0) return true;
  for (const ClassRange& range : kSinceUnicode16) {
    if (code_point >= range.first && code_point <= range.last) return true;
  }
  return false;
}

bool IsWordCharacter(int32_t code_point) {
  if (code_point < 0) return false;
  if ((ClassOf(code_point) & (kLetter | kMark)) != 0) return true;
  if (u_hasBinaryProperty(code_point, UCHAR_ALPHABETIC)) return true;
  if (u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL)) return true;
  const int8_t type = u_charType(code_point);
  if (type == U_UNASSIGNED) return (ClassOf(code_point) & kNumber) != 0;
  return type == U_DECIMAL_DIGIT_NUMBER || type == U_CONNECTOR_PUNCTUATION;
}

}  // namespace octavo::engine
