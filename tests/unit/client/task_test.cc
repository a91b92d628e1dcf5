#include "client/example/task.h"

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

const Task& TaskNamed(const std::string& name) {
  for (const Task& task : Tasks()) {
    if (task.name == name) return task;
  }
  ADD_FAILURE() << name;
  return Tasks().front();
}

// Digits [first, first + count) of a document, lowest first, as a number.
int NumberIn(const std::string& document, size_t first, size_t count) {
  std::string digits = document.substr(first, count);
  std::reverse(digits.begin(), digits.end());
  int number = -1;
  EXPECT_TRUE(absl::SimpleAtoi(digits, &number)) << document;
  return number;
}

TEST(Arithmetic, DocumentsAreSumsLowestDigitFirst) {
  const TemporaryFolder folder;
  ASSERT_TRUE(
      WriteTask(TaskNamed("arithmetic"), folder.path(), {.train_documents = 500, .heldout = 5})
          .ok());
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

TEST(Cipher, AnswersAreThirteenPlacesOn) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteTask(TaskNamed("cipher"), folder.path(), {.train_documents = 500}).ok());
  int documents = 0;
  std::set<char> letters;
  for (const absl::string_view document :
       absl::StrSplit(MustRead(folder.At("train.txt")), '\n', absl::SkipEmpty())) {
    ASSERT_EQ(document.size(), 15u) << document;
    EXPECT_EQ(document[7], '=');
    for (size_t i = 0; i < 7; ++i) {
      ASSERT_TRUE(document[i] >= 'a' && document[i] <= 'z') << document;
      EXPECT_EQ((document[i] - 'a' + 13) % 26, document[8 + i] - 'a') << document;
      letters.insert(document[i]);
    }
    ++documents;
  }
  EXPECT_EQ(documents, 500);
  EXPECT_EQ(letters.size(), 26u);
}

TEST(Task, HeldOutProblemsAreNeverTrainedOn) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteTask(TaskNamed("arithmetic"), folder.path(), {.heldout = 20000}).ok());
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

TEST(Task, TheSeedDecidesEveryByte) {
  const TemporaryFolder folder;
  for (const auto& [name, seed] : {std::pair("a", 1), std::pair("b", 1), std::pair("c", 2)}) {
    ASSERT_TRUE(
        WriteTask(TaskNamed("arithmetic"), folder.At(name),
                  {.seed = static_cast<uint64_t>(seed), .train_documents = 100, .heldout = 10})
            .ok());
  }
  for (const char* const file : {"/train.txt", "/heldout.jsonl"}) {
    EXPECT_EQ(MustRead(folder.At("a") + file), MustRead(folder.At("b") + file));
    EXPECT_NE(MustRead(folder.At("a") + file), MustRead(folder.At("c") + file));
  }
}

TEST(Task, OptionsOutOfRangeAreRefusedWithTheRange) {
  const TemporaryFolder folder;
  const absl::Status status =
      WriteTask(TaskNamed("arithmetic"), folder.path(), {.heldout = 100'001});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("heldout is 100001, not in [1, 100000]"));
}

}  // namespace
}  // namespace octavo
