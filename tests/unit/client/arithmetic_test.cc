#include "client/example/arithmetic.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"

namespace octavo {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::HasSubstr;

std::string MustRead(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, int64_t{1} << 28);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

// Digits [first, first + count) of a document, lowest first, as a number.
int NumberIn(const std::string& document, size_t first, size_t count) {
  std::string digits = document.substr(first, count);
  std::reverse(digits.begin(), digits.end());
  int number = -1;
  EXPECT_TRUE(absl::SimpleAtoi(digits, &number)) << document;
  return number;
}

TEST(ArithmeticExample, DocumentsAreSumsLowestDigitFirst) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteArithmeticExample(folder.path(), {.train_documents = 500, .heldout = 5}).ok());
  std::vector<std::string> documents = absl::StrSplit(MustRead(folder.At("train.txt")), '\n');
  EXPECT_EQ(documents.back(), "");
  documents.pop_back();
  ASSERT_EQ(documents.size(), 500u);
  for (const std::string& document : documents) {
    ASSERT_EQ(document.size(), 12u) << document;
    EXPECT_EQ(NumberIn(document, 0, 3) + NumberIn(document, 4, 3), NumberIn(document, 8, 4))
        << document;
    EXPECT_EQ(std::string({document[3], document[7]}), "+=");
  }
}

TEST(ArithmeticExample, HeldOutProblemsAreNeverTrainedOn) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteArithmeticExample(folder.path(), {.heldout = 20000}).ok());
  const std::string train = MustRead(folder.At("train.txt"));
  std::set<std::string> trained;
  for (const absl::string_view document : absl::StrSplit(train, '\n', absl::SkipEmpty())) {
    trained.emplace(document.substr(0, 8));
  }
  const std::string heldout = MustRead(folder.At("heldout.jsonl"));
  std::set<std::string> prompts;
  for (const absl::string_view row : absl::StrSplit(heldout, '\n', absl::SkipEmpty())) {
    ASSERT_TRUE(absl::StartsWith(row, "{\"prompt\":\"")) << row;
    const std::string prompt(row.substr(11, 8));
    EXPECT_FALSE(trained.contains(prompt)) << prompt;
    prompts.insert(prompt);
  }
  EXPECT_EQ(prompts.size(), 20000u);
}

TEST(ArithmeticExample, TheSeedDecidesEveryByte) {
  const TemporaryFolder folder;
  for (const auto& [name, seed] : {std::pair("a", 1), std::pair("b", 1), std::pair("c", 2)}) {
    ASSERT_TRUE(WriteArithmeticExample(
                    folder.At(name),
                    {.seed = static_cast<uint64_t>(seed), .train_documents = 100, .heldout = 10})
                    .ok());
  }
  for (const char* const file : {"/train.txt", "/heldout.jsonl"}) {
    EXPECT_EQ(MustRead(folder.At("a") + file), MustRead(folder.At("b") + file));
    EXPECT_NE(MustRead(folder.At("a") + file), MustRead(folder.At("c") + file));
  }
}

TEST(ArithmeticExample, OptionsOutOfRangeAreRefusedWithTheRange) {
  const TemporaryFolder folder;
  const absl::Status status = WriteArithmeticExample(folder.path(), {.heldout = 100'001});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("heldout is 100001, not in [1, 100000]"));
}

}  // namespace
}  // namespace octavo
