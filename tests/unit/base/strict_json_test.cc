#include "base/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace octavo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto sorted = ParseStrictJson(text, "a/config.json");
  const auto ordered = ParseOrderedJson(text, "a/config.json");
  EXPECT_TRUE(absl::IsInvalidArgument(sorted.status())) << sorted.status();
  EXPECT_EQ(sorted.status(), ordered.status());
  EXPECT_THAT(std::string(sorted.status().message()), HasSubstr("a/config.json: "));
  return std::string(sorted.status().message());
}

std::string Repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(StrictJson, KeepsValuesAndOnlyTheOrderedOneTheOrder) {
  const std::string text = R"({"b": [1, {"a": null, "A": 2.5}], "a": "x"})";
  ASSERT_TRUE(ParseStrictJson(text, "p").ok());
  EXPECT_EQ(ParseStrictJson(text, "p")->dump(), R"({"a":"x","b":[1,{"A":2.5,"a":null}]})");
  EXPECT_EQ(ParseOrderedJson(text, "p")->dump(), R"({"b":[1,{"a":null,"A":2.5}],"a":"x"})");
}

TEST(StrictJson, NamesAKeyThatOccursTwiceWhereverItStands) {
  EXPECT_THAT(ErrorOf(R"({"n": 1, "m": 2, "n": 1})"), HasSubstr("key \"n\" occurs twice"));
  EXPECT_THAT(ErrorOf(R"({"l": [{"deep": {"k": 1, "k": 2}}]})"), HasSubstr("\"k\" occurs twice"));
  EXPECT_TRUE(ParseStrictJson(R"({"l": [{"k": 1}, {"k": 2}], "k": {"k": 3}})", "p").ok());
}

TEST(StrictJson, NamesTheByteThatIsNotJson) {
  EXPECT_THAT(ErrorOf(R"({"a": 1,})"), HasSubstr("not valid JSON at its byte 9"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(R"({"a": "\ud800"})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(R"({"a": 1e999})"), HasSubstr("beyond the range"));
  EXPECT_THAT(ErrorOf(R"({} {})"), HasSubstr("not valid JSON"));
}

TEST(StrictJson, RefusesAZeroByteAndWhatStandsBehindIt) {
  const std::string zero(1, '\0');
  EXPECT_THAT(ErrorOf(R"({"a": 1})" + zero + "{}"), HasSubstr("not valid JSON at its byte 9"));
  EXPECT_THAT(ErrorOf(R"({"a": 1})" + zero), HasSubstr("a zero byte"));
  EXPECT_THAT(ErrorOf(R"({"a)" + zero + R"(": 1})"), HasSubstr("at its byte 4"));
}

TEST(StrictJson, RefusesWhatIsNoObject) {
  for (const char* text : {"[]", "1", "\"{}\"", "null", "true"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("not a JSON object")) << text;
  }
}

TEST(StrictJson, NestsToItsLimitAndNoDeeper) {
  const auto nested = [](int depth) {
    return absl::StrCat(R"({"a": )", Repeated("[", depth - 1), Repeated("]", depth - 1), "}");
  };
  EXPECT_TRUE(ParseStrictJson(nested(kMostJsonNesting), "p").ok());
  EXPECT_THAT(ErrorOf(nested(kMostJsonNesting + 1)), HasSubstr("limit of 64"));
  // A tree this deep would overflow the stack of whoever prints it.
  EXPECT_THAT(ErrorOf(nested(1'000'000)), HasSubstr("limit of 64"));
  EXPECT_THAT(ErrorOf(Repeated(R"({"a":)", 1'000'000) + "1" + Repeated("}", 1'000'000)),
              HasSubstr("limit of 64"));
}

TEST(StrictJson, LimitsTheKeysOfAnOrderedObject) {
  const auto with_keys = [](int count) {
    std::string text = "{\"0\":0";
    for (int i = 1; i < count; ++i) absl::StrAppend(&text, ",\"", i, "\":0");
    return text + "}";
  };
  EXPECT_TRUE(ParseOrderedJson(with_keys(kMostOrderedJsonKeys), "p").ok());
  const auto refused = ParseOrderedJson(with_keys(kMostOrderedJsonKeys + 1), "p");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("p: an object has more than"));
  EXPECT_TRUE(ParseStrictJson(with_keys(200'000), "p").ok());
}

}  // namespace
}  // namespace octavo
