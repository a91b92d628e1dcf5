// Every tokenizer of the golden: ids and decoded texts exactly, or a refusal that names the kind.
#include "worker/engine/data/tokenizer.h"

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/golden.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::GoldenFolder;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::vector<Json> ReadRows(const std::string& path) {
  std::vector<Json> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

std::vector<Json> Sets() {
  std::ifstream file(GoldenFolder("tokenizer/index.json"));
  const Json index = Json::parse(file);
  return index["sets"].get<std::vector<Json>>();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const Json& set) {
  const std::string path = GoldenFolder("tokenizer/" + set["tokenizer"].get<std::string>());
  const absl::StatusOr<std::string> json = ReadFile(path, int64_t{64} << 20);
  if (!json.ok()) return json.status();
  return LoadTokenizerJson(*json, 0);
}

Ids Encode(const Tokenizer& tokenizer, const std::string& text, bool added_tokens) {
  Ids ids;
  tokenizer.Encode(text, {.added_tokens = added_tokens}, &ids);
  return ids;
}

// Kinds that are no byte-level BPE, and the word by which they are refused.
const std::map<std::string, std::string>& Refused() {
  static const auto& refused = *new std::map<std::string, std::string>{
      {"llama2-like", "normalizer is Prepend"},
      {"variants/fuse-unk", "normalizer is Prepend"},
      {"variants/no-fuse-unk", "normalizer is Prepend"},
      {"variants/no-unk", "normalizer is Prepend"},
      {"variants/added-normalized", "normalizer is Prepend"},
      {"variants/merges-space", "pre_tokenizer is null without ByteLevel"},
  };
  return refused;
}

void ExpectCase(const Tokenizer& tokenizer, const Json& row) {
  SCOPED_TRACE(row["id"].get<std::string>());
  const std::string text = row["text"];
  const Ids ids = row["ids"];
  EXPECT_EQ(Encode(tokenizer, text, true), ids);
  EXPECT_EQ(Encode(tokenizer, text, false), row.value("ids_plain", ids));
  EXPECT_EQ(tokenizer.Decode(ids), row["decoded"].get<std::string>());
  Ids with_begin = ids;
  if (tokenizer.begin_of_document() >= 0) {
    with_begin.insert(with_begin.begin(), tokenizer.begin_of_document());
  }
  EXPECT_EQ(with_begin, row.value("ids_with_special", ids));
}

TEST(TokenizerGolden, ByteLevelTokenizersGiveTheReferencesIds) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("tokenizer");
  int64_t cases = 0;
  for (const Json& set : Sets()) {
    const std::string name = set["name"];
    if (Refused().contains(name)) continue;
    SCOPED_TRACE(name);
    const auto begin = std::chrono::steady_clock::now();
    const auto tokenizer = Load(set);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto loaded = std::chrono::steady_clock::now();
    const std::string folder = GoldenFolder("tokenizer/" + name);
    const std::vector<Json> rows = ReadRows(folder + "/cases.jsonl");
    EXPECT_EQ(static_cast<int64_t>(rows.size()), set["cases"]);
    for (const Json& row : rows) ExpectCase(**tokenizer, row);
    cases += static_cast<int64_t>(rows.size());
    std::cout << name << ": " << rows.size() << " cases, loaded in "
              << std::chrono::duration<double>(loaded - begin).count() << " s\n";
  }
  EXPECT_GT(cases, 0);
}

TEST(TokenizerGolden, WholeSequencesDecodeToTheReferencesText) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("tokenizer");
  for (const Json& set : Sets()) {
    const std::string name = set["name"];
    if (Refused().contains(name) || !set.contains("decode")) continue;
    SCOPED_TRACE(name);
    const auto tokenizer = Load(set);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<Json> rows = ReadRows(GoldenFolder("tokenizer/" + name + "/decode.jsonl"));
    ASSERT_EQ(static_cast<int64_t>(rows.size()), set["decode"]);
    for (const Json& row : rows) {
      EXPECT_EQ((*tokenizer)->Decode(row["ids"].get<Ids>()), row["text"].get<std::string>())
          << row["id"];
    }
  }
}

TEST(TokenizerGolden, OtherKindsAreRefusedByName) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("tokenizer");
  std::set<std::string> refused;
  for (const Json& set : Sets()) {
    const std::string name = set["name"];
    if (!Refused().contains(name)) continue;
    const auto tokenizer = Load(set);
    ASSERT_FALSE(tokenizer.ok()) << name;
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(Refused().at(name)));
    refused.insert(name);
  }
  EXPECT_FALSE(refused.empty());  // a set may hold only some of them
}

TEST(TokenizerGolden, QwenCutsAMegabyteInAboutASecond) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("tokenizer");
  const auto tokenizer = Load(Sets().front());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string mebibyte(1 << 20, 'a');
  std::string mixed;
  while (mixed.size() < mebibyte.size()) mixed += "QzRf/x7+ ab\t\xE4\xBD\xA0 ";
  for (const std::string& text :
       {mebibyte, std::string(1 << 20, ' '), std::string(1 << 20, '\n'), mixed}) {
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = Encode(**tokenizer, text, false);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cout << ids.size() << " ids in " << seconds << " s\n";
    EXPECT_EQ((*tokenizer)->Decode(ids), text);
    EXPECT_LT(seconds, 20) << "a guard against quadratic time, not a measurement";
  }
}

}  // namespace
}  // namespace octavo::engine
