// Tokenizers made by hand, so that each rule stands alone.
#include "worker/engine/data/tokenizer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"
#include "worker/engine/data/byte_alphabet.h"
#include "worker/engine/data/split_pattern.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

// Ids 0-255 are the bytes; then "ab", "abc", "bc", "Gab" (a space before ab).
Json SmallTokenizer() {
  Json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[ByteSymbol(static_cast<uint8_t>(byte))] = byte;
  }
  const std::string space = ByteSymbol(' ');
  vocabulary["ab"] = 256;
  vocabulary["bc"] = 257;
  vocabulary["abc"] = 258;
  vocabulary[space + "ab"] = 259;
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const Json added = Json::parse(R"([{"id": 260, "content": "<|end|>", "special": true},
                                     {"id": 261, "content": "<tool>", "special": false}])");
  return {{"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", Json::array({"b c", "a b", "ab c", space + " ab"})}}}};
}

std::unique_ptr<Tokenizer> MustLoad(const Json& json) {
  auto tokenizer = LoadTokenizerJson(json.dump(), 260);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string LoadError(const Json& json) {
  const auto tokenizer = LoadTokenizerJson(json.dump(), 260);
  EXPECT_FALSE(tokenizer.ok());
  return std::string(tokenizer.status().message());
}

Ids Encode(const Tokenizer& tokenizer, const std::string& text, bool added_tokens = false) {
  Ids ids;
  tokenizer.Encode(text, {.added_tokens = added_tokens}, &ids);
  return ids;
}

TEST(ByteTokenizer, BytesAreIds) {
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_THAT(Encode(*tokenizer, "a\xC3\xA9"), ElementsAre('a', 0xC3, 0xA9));
  EXPECT_EQ(tokenizer->Decode({'a', 0xC3, 0xA9, 256}), "a\xC3\xA9");
  EXPECT_EQ(tokenizer->Decode({0xC3, 'a'}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(tokenizer->vocabulary_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_EQ(tokenizer->begin_of_document(), -1);
}

TEST(ByteLevelTokenizer, TheLowestRankIsMergedFirst) {
  const auto tokenizer = MustLoad(SmallTokenizer());
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre('a', 257)) << "b c comes before a b";
  EXPECT_THAT(Encode(*tokenizer, "ab ab"), ElementsAre(256, 259));
}

TEST(ByteLevelTokenizer, LongPiecesAreMergedLikeShortOnes) {
  const auto tokenizer = MustLoad(SmallTokenizer());
  std::string text;
  Ids expected;
  for (int i = 0; i < 1000; ++i) {
    text += i % 3 == 0 ? "abc" : "ab";
    i % 3 == 0 ? expected.insert(expected.end(), {'a', 257})
               : expected.insert(expected.end(), {256});
  }
  EXPECT_EQ(Encode(*tokenizer, text), expected);
}

TEST(ByteLevelTokenizer, MergesAsPairsAreTheSame) {
  Json pairs = SmallTokenizer();
  const auto pair = [](const std::string& left, const std::string& right) {
    return Json::array({left, right});
  };
  pairs["model"]["merges"] =
      Json::array({pair("b", "c"), pair("a", "b"), pair("ab", "c"), pair(ByteSymbol(' '), "ab")});
  EXPECT_EQ(Encode(*MustLoad(pairs), "abc ab"), Encode(*MustLoad(SmallTokenizer()), "abc ab"));
}

TEST(ByteLevelTokenizer, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  Json json = SmallTokenizer();
  json["model"]["ignore_merges"] = true;
  const auto tokenizer = MustLoad(json);
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre(258));
  EXPECT_THAT(Encode(*tokenizer, "abcc"), ElementsAre('a', 257, 'c'));
}

TEST(ByteLevelTokenizer, UserTextNeverBecomesAControlToken) {
  const auto tokenizer = MustLoad(SmallTokenizer());
  const std::string text = "ab<|end|><tool>";
  EXPECT_THAT(Encode(*tokenizer, text, true), ElementsAre(256, 260, 261));
  const Ids plain = Encode(*tokenizer, text, false);
  for (const int32_t id : plain) EXPECT_LT(id, 260);
  EXPECT_EQ(tokenizer->Decode(plain), text);
}

TEST(ByteLevelTokenizer, NfcComposesWithinAPieceBetweenAddedTokens) {
  Json json = SmallTokenizer();
  json["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = MustLoad(json);
  EXPECT_THAT(Encode(*tokenizer, "e\xCC\x81"), ElementsAre(0xC3, 0xA9));
  EXPECT_THAT(Encode(*tokenizer, "e<|end|>\xCC\x81", true), ElementsAre('e', 260, 0xCC, 0x81));
  EXPECT_THAT(Encode(*MustLoad(SmallTokenizer()), "e\xCC\x81"), ElementsAre('e', 0xCC, 0x81));
}

TEST(ByteLevelTokenizer, ATemplateSaysWhatStandsBeforeADocument) {
  Json json = SmallTokenizer();
  json["post_processor"] = Json::parse(R"({
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [260]}}})");
  EXPECT_EQ(MustLoad(json)->begin_of_document(), 260);
  EXPECT_EQ(MustLoad(SmallTokenizer())->begin_of_document(), -1);
}

TEST(ByteLevelTokenizer, BytesWithoutASymbolAreLostAndCounted) {
  Json json = SmallTokenizer();
  json["model"]["vocab"].erase(ByteSymbol(4));
  json["model"]["vocab"]["filler"] = 4;
  const auto tokenizer = MustLoad(json);
  EXPECT_THAT(Encode(*tokenizer,
                     "a\x04"
                     "b"),
              ElementsAre('a', 'b'));
  EXPECT_EQ(tokenizer->lost_bytes(), 1);
}

TEST(ByteLevelTokenizer, LeftOverTruncationAndPaddingAreIgnored) {
  Json json = SmallTokenizer();
  json["truncation"] = {{"max_length", 1}};
  json["padding"] = {{"strategy", {{"Fixed", 16}}}};
  EXPECT_THAT(Encode(*MustLoad(json), "ab ab"), ElementsAre(256, 259));
}

TEST(ByteLevelTokenizer, WhatIsNotSupportedIsRefusedByName) {
  const auto with = [](const char* pointer, const Json& value) {
    Json json = SmallTokenizer();
    json[Json::json_pointer(pointer)] = value;
    return LoadError(json);
  };
  EXPECT_THAT(with("/normalizer", {{"type", "Lowercase"}}), HasSubstr("normalizer is Lowercase"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr("pre_tokenizer is Metaspace"));
  EXPECT_THAT(with("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder is WordPiece"));
  EXPECT_THAT(with("/model/type", "Unigram"), HasSubstr("model.type is Unigram"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("model.dropout is 0.1"));
  EXPECT_THAT(with("/model/merges/0", "a b c"), HasSubstr("model.merges[0] \"a b c\" is not two"));
  EXPECT_THAT(with("/model/merges/0", "x y"), HasSubstr("model.vocab does not have"));
  EXPECT_THAT(with("/model/vocab/ab", -1), HasSubstr("the id of \"ab\" is -1"));
  EXPECT_FALSE(LoadTokenizerJson("[", 0).ok());
  EXPECT_THAT(std::string(LoadTokenizerJson(SmallTokenizer().dump(), 999).status().message()),
              HasSubstr("end-of-document token has id 999, beyond the tokenizer's 262 ids"));
}

TEST(LoadTokenizer, FindsTheEndOfADocumentInTheFolder) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", SmallTokenizer().dump());
  EXPECT_THAT(std::string(LoadTokenizer(folder.path()).status().message()),
              HasSubstr("does not say which token ends a document"));
  folder.Write("tokenizer_config.json", R"({"eos_token": {"content": "<tool>"}})");
  EXPECT_EQ((*LoadTokenizer(folder.path()))->end_of_document(), 261);
  folder.Write("config.json", R"({"eos_token_id": 258})");
  EXPECT_EQ((*LoadTokenizer(folder.path()))->end_of_document(), 258);
  folder.Write("generation_config.json", R"({"eos_token_id": [260, 258]})");
  EXPECT_EQ((*LoadTokenizer(folder.path()))->end_of_document(), 260);
}

// Each of these once ended the process, by an exception or by the stack.
TEST(LoadTokenizer, AFolderOfTheWrongTypesIsRefused) {
  const TemporaryFolder folder;
  folder.Write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  const auto error = [&folder](const std::string& tokenizer_json) {
    folder.Write("tokenizer.json", tokenizer_json);
    const auto tokenizer = LoadTokenizer(folder.path());
    EXPECT_FALSE(tokenizer.ok());
    return std::string(tokenizer.status().message());
  };
  Json list_model = SmallTokenizer();
  list_model["model"] = Json::array({1, 2});
  EXPECT_THAT(error(list_model.dump()), HasSubstr("model.vocab is empty or no object"));
  Json no_end = SmallTokenizer();
  no_end["added_tokens"] = Json::array();
  EXPECT_THAT(error(no_end.dump()), HasSubstr("has no token \"<|end|>\", which tokenizer_config"));
  for (const char* const key : {"added_tokens", "normalizer", "pre_tokenizer", "post_processor"}) {
    for (const char* const value : {"7", "\"x\"", "[[]]", "{\"type\":7}", "{\"content\":7}"}) {
      Json wrong = SmallTokenizer();
      wrong[key] = Json::parse(value);
      EXPECT_THAT(error(wrong.dump()), HasSubstr("tokenizer.json: ")) << key << " " << value;
    }
  }
  // The reference ignores the ids of added tokens in the file, so it may be anything.
  Json text_id = SmallTokenizer();
  text_id["added_tokens"][0]["id"] = "2";
  folder.Write("tokenizer.json", text_id.dump());
  EXPECT_EQ((*LoadTokenizer(folder.path()))->end_of_document(), 260);
}

TEST(LoadTokenizer, NestingAndStagesHaveALimit) {
  for (const auto& [key, list] : {std::pair{"normalizer", "normalizers"},
                                  {"pre_tokenizer", "pretokenizers"},
                                  {"post_processor", "processors"}}) {
    const std::string text = SmallTokenizer().dump();
    std::string nested;
    for (int i = 0; i < 100000; ++i) {
      nested += absl::StrCat("{\"type\":\"Sequence\",\"", list, "\":[");
    }
    for (int i = 0; i < 100000; ++i) nested += "]}";
    Json marked = SmallTokenizer();
    marked[key] = "HERE";
    const auto tokenizer =
        LoadTokenizerJson(absl::StrReplaceAll(marked.dump(), {{"\"HERE\"", nested}}), 260);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("nest deeper than"));
  }
  Json many = SmallTokenizer();
  const Json stage = many["pre_tokenizer"];
  many["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
  for (int i = 0; i < 17; ++i) many["pre_tokenizer"]["pretokenizers"].push_back(stage);
  EXPECT_THAT(LoadError(many), HasSubstr("a sequence of more than 16"));
}

// The scanners by hand against the regular expressions that they stand for.
TEST(SplitPattern, ScannersCutLikeOniguruma) {
  const std::string contraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  const std::string rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string nemo =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
      R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::vector<std::string> alphabet = {"a",
                                             "B",
                                             "s",
                                             "S",
                                             "'",
                                             "'ll",
                                             "'VE",
                                             "\xC5\xBF",
                                             " ",
                                             "  ",
                                             "\t",
                                             "\n",
                                             "\r",
                                             "/",
                                             "1",
                                             "\xC2\xBD",
                                             ".",
                                             "-",
                                             "\xC7\x85",
                                             "\xCA\xB0",
                                             "\xE4\xBD\xA0",
                                             "\xCC\x81",
                                             "\xC2\xA0",
                                             "\xE1\xA0\x8E",
                                             "\xF0\x9F\x98\x80"};
  uint64_t state = 1;
  for (const std::string& pattern : {std::string(kGpt2Pattern), contraction + R"(\p{N})" + rest,
                                     contraction + R"(\p{N}{1,3})" + rest, nemo}) {
    const auto scanner = MakeSplitter(pattern);
    const auto regex = MakeRegexSplitter(pattern);
    ASSERT_TRUE(scanner.ok() && regex.ok());
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (int i = 0; i < 12; ++i) {
        state = state * 6364136223846793005 + 1442695040888963407;
        text += alphabet[(state >> 33) % alphabet.size()];
      }
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = (*scanner)->PieceEnd(text, begin);
        ASSERT_EQ(end, (*regex)->PieceEnd(text, begin)) << pattern << "\n" << Json(text);
        begin = end;
      }
    }
  }
}

TEST(SplitPattern, UnknownPatternsRunInOniguruma) {
  const auto splitter = MakeSplitter(R"(\d+)");
  ASSERT_TRUE(splitter.ok());
  EXPECT_EQ((*splitter)->PieceEnd("ab12c", 0), 2u);
  EXPECT_EQ((*splitter)->PieceEnd("ab12c", 2), 4u);
  EXPECT_EQ((*splitter)->PieceEnd("ab12c", 4), 5u);
  EXPECT_THAT(std::string(MakeSplitter("(").status().message()), HasSubstr("split pattern \"(\""));
}

}  // namespace
}  // namespace octavo::engine
