#include "base/utf8.h"

#include "gtest/gtest.h"

namespace octavo {
namespace {

TEST(Utf8, EveryCharacterSurvivesWritingAndReading) {
  std::string all;
  for (int32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string one;
    AppendUtf8(code_point, &one);
    const Utf8Character read = DecodeUtf8(one, 0);
    ASSERT_EQ(read.code_point, code_point);
    ASSERT_EQ(read.length, one.size()) << code_point;
    all += one;
  }
  EXPECT_EQ(FindMalformedUtf8(all), std::string::npos);
  EXPECT_EQ(ReplaceMalformedUtf8(all), all);
}

// Table 3-7 of the Unicode standard: what its rows leave out is no character.
TEST(Utf8, WhatIsNoCharacterIsFoundAtItsFirstByte) {
  for (const absl::string_view bad :
       {"\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF0\x9F\x92",
        "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(FindMalformedUtf8(std::string("ab") + std::string(bad)), 2u) << bad.size();
  }
}

TEST(Utf8, OneReplacementStandsForEachMaximalBrokenPart) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceMalformedUtf8("a\xF0\x9F\x92z"), "a" + mark + "z") << "one cut character";
  EXPECT_EQ(ReplaceMalformedUtf8("\xED\xA0\x80"), mark + mark + mark) << "a surrogate";
  EXPECT_EQ(ReplaceMalformedUtf8("\xC3"), mark);
}

}  // namespace
}  // namespace octavo
