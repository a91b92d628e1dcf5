#include "worker/engine/data/corpus.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kEnd = 256;
constexpr int64_t kVocabulary = 257;

class CorpusTest : public ::testing::Test {
 protected:
  CorpusTest() {
    spec_.tokenizer = DataSpec::TokenizerKind::kByte;
    spec_.sequence_length = 4;
    spec_.holdout_fraction = 0;
    spec_.document_separator = "\n";
  }

  absl::StatusOr<std::unique_ptr<Corpus>> Open(const std::string& text) {
    spec_.files = {folder_.Write("train.txt", text)};
    return OpenCorpus(spec_, *tokenizer_, kVocabulary);
  }
  std::unique_ptr<Corpus> MustOpen(const std::string& text) {
    auto corpus = Open(text);
    EXPECT_TRUE(corpus.ok()) << corpus.status();
    return *std::move(corpus);
  }

  // Rows by their first byte: row r of this text begins with the r-th letter.
  static std::string LetterRows(int rows) {
    std::string text;
    for (int row = 0; row < rows; ++row) text += std::string(4, static_cast<char>('a' + row));
    return text;
  }
  static std::string FirstLetters(const Batch& batch) {
    std::string letters;
    for (int64_t row = 0; row < batch.rows; ++row) {
      letters += static_cast<char>(batch.ids[row * batch.sequence]);
    }
    return letters;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  DataSpec spec_;
};

TEST_F(CorpusTest, ARowPredictsTheNextTokenOfTheStream) {
  spec_.isolate_documents = false;
  const auto corpus = MustOpen("abcdefgh");
  EXPECT_EQ(corpus->report().tokens, 9);
  ASSERT_EQ(corpus->report().train_rows, 2);
  Batch batch = corpus->TrainBatch(1, 0, 2);
  if (batch.ids[0] != 'a') std::rotate(batch.ids.begin(), batch.ids.begin() + 4, batch.ids.end());
  if (batch.targets[0] != 'b') {
    std::rotate(batch.targets.begin(), batch.targets.begin() + 4, batch.targets.end());
  }
  EXPECT_THAT(batch.ids, ElementsAre('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', 'd', 'e', 'f', 'g', 'h', kEnd));
}

TEST_F(CorpusTest, AnIsolatedDocumentIsNotTrainedToPredictItsNeighbour) {
  spec_.sequence_length = 8;
  const auto corpus = MustOpen("abc\nde\nf");
  ASSERT_EQ(corpus->report().train_rows, 1);
  const Batch batch = corpus->TrainBatch(1, 0, 1);
  EXPECT_THAT(batch.ids, ElementsAre('a', 'b', 'c', kEnd, 'd', 'e', kEnd, 'f'));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', kEnd, kMasked, 'e', kEnd, kMasked, kEnd));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 0));
  EXPECT_THAT(batch.attend_from, ElementsAre(0, 0, 0, 0, 4, 4, 4, 7));
}

TEST_F(CorpusTest, DocumentsThatAreNotIsolatedAreOneText) {
  spec_.sequence_length = 8;
  spec_.isolate_documents = false;
  const Batch batch = MustOpen("abc\nde\nf")->TrainBatch(1, 0, 2);
  EXPECT_THAT(std::vector<int32_t>(batch.targets.begin(), batch.targets.begin() + 8),
              ElementsAre('b', 'c', kEnd, 'd', 'e', kEnd, 'f', kEnd));
  EXPECT_EQ(batch.positions[7], 7);
  EXPECT_EQ(batch.attend_from[7], 0);
  EXPECT_EQ(batch.attend_from[15], 8) << "the second row attends to itself alone";
}

TEST_F(CorpusTest, ARowInsideADocumentStartsAtPositionZero) {
  const auto corpus = MustOpen("abcdefghijklm");
  const Batch batch = corpus->TrainBatch(7, 0, 3);
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(batch.positions[row * 4], 0);
    EXPECT_EQ(batch.attend_from[row * 4 + 3], row * 4);
  }
}

TEST_F(CorpusTest, EveryTokenIsAnInputOnceAnEpoch) {
  const std::string text = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
  const auto corpus = MustOpen(text);
  const int64_t rows = corpus->report().train_rows;
  const Batch batch = corpus->TrainBatch(3, 0, rows);
  std::vector<int32_t> ids = batch.ids;
  std::vector<int32_t> expected(text.begin(), text.end());
  std::replace(expected.begin(), expected.end(), int32_t{'\n'}, kEnd);
  expected.resize(rows * 4);  // the last tokens are less than a row
  std::sort(ids.begin(), ids.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(corpus->report().documents, 7);
  EXPECT_EQ(corpus->report().tokens, static_cast<int64_t>(text.size()));
}

TEST_F(CorpusTest, EpochsArePermutationsThatDiffer) {
  const auto corpus = MustOpen(LetterRows(20));
  ASSERT_EQ(corpus->report().train_rows, 20);
  std::set<std::string> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::string letters = FirstLetters(corpus->TrainBatch(5, epoch * 20, 20));
    orders.insert(letters);
    std::sort(letters.begin(), letters.end());
    EXPECT_EQ(letters, "abcdefghijklmnopqrst");
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_NE(FirstLetters(corpus->TrainBatch(6, 0, 20)), FirstLetters(corpus->TrainBatch(5, 0, 20)));
}

TEST_F(CorpusTest, ABatchDependsOnSeedAndSampleAlone) {
  const auto corpus = MustOpen(LetterRows(7));
  const std::string all = FirstLetters(corpus->TrainBatch(5, 0, 21));
  const auto again = MustOpen(LetterRows(7));
  std::string pieces;
  for (int64_t sample = 18; sample >= 0; sample -= 3) {
    pieces.insert(0, FirstLetters(again->TrainBatch(5, sample, 3)));
  }
  EXPECT_EQ(pieces, all) << "batches of three that cross epochs, fetched in reverse";
}

TEST_F(CorpusTest, EveryRowIsTrainedOnOrHeldOut) {
  spec_.holdout_fraction = 0.2;
  const auto corpus = MustOpen(LetterRows(20));
  EXPECT_EQ(corpus->report().train_rows, 16);
  EXPECT_EQ(corpus->report().holdout_rows, 4);
  const std::string held_out = FirstLetters(corpus->HoldoutBatch(0, 100));
  ASSERT_EQ(held_out.size(), 4u);
  EXPECT_EQ(FirstLetters(corpus->HoldoutBatch(3, 5)), held_out.substr(3));
  EXPECT_EQ(corpus->HoldoutBatch(4, 5).rows, 0);
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::string all = held_out + FirstLetters(corpus->TrainBatch(5, 16 * epoch, 16));
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, "abcdefghijklmnopqrst");
  }
}

// A tail of the last file would measure that file alone.
TEST_F(CorpusTest, TheFirstHeldOutRowsComeFromEverySource) {
  constexpr int kSources = 4;
  spec_.holdout_fraction = 0.2;
  spec_.files.clear();
  for (int source = 0; source < kSources; ++source) {
    const std::string letter(1, static_cast<char>('a' + source));
    std::string text;
    for (int i = 0; i < 400; ++i) text += letter;
    spec_.files.push_back(folder_.Write(letter + ".txt", text));
  }
  const auto corpus = OpenCorpus(spec_, *tokenizer_, kVocabulary);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  ASSERT_EQ((*corpus)->report().holdout_rows, 80);
  const std::string letters = FirstLetters((*corpus)->HoldoutBatch(0, 40));
  for (int source = 0; source < kSources; ++source) {
    // 10 of 40 are expected; the draw is a constant, so this holds for ever or never.
    EXPECT_GE(std::count(letters.begin(), letters.end(), static_cast<char>('a' + source)), 5);
  }
  EXPECT_EQ(FirstLetters((*OpenCorpus(spec_, *tokenizer_, kVocabulary))->HoldoutBatch(0, 40)),
            letters);
}

TEST_F(CorpusTest, AnErrorKnowsItsFile) {
  spec_.files = {folder_.Write("a.txt", "abcdefgh\n"), folder_.Write("a.txt.jsonl", "{\n")};
  EXPECT_EQ(FieldOfError(OpenCorpus(spec_, *tokenizer_, kVocabulary).status()), "data.files[1]");
  spec_.files.pop_back();
  spec_.holdout_files = {spec_.files[0], folder_.At("none.txt")};
  EXPECT_EQ(FieldOfError(OpenCorpus(spec_, *tokenizer_, kVocabulary).status()),
            "data.holdout_files[1]");
  spec_.holdout_files = {folder_.Write("b.txt", "a")};
  EXPECT_EQ(FieldOfError(OpenCorpus(spec_, *tokenizer_, kVocabulary).status()),
            "data.holdout_files");
}

TEST_F(CorpusTest, HoldoutFilesReplaceTheFraction) {
  spec_.holdout_fraction = 0.2;
  spec_.holdout_files = {folder_.Write("held.txt", "zzzz\nyyyy\n")};
  const auto corpus = MustOpen(LetterRows(20));
  EXPECT_EQ(corpus->report().train_rows, 20);
  EXPECT_EQ(corpus->report().holdout_rows, 2);
  EXPECT_THAT(corpus->HoldoutBatch(0, 1).ids, ElementsAre('z', 'z', 'z', 'z'));
}

TEST_F(CorpusTest, ACorpusBelowOneRowIsRefusedWithTheNumbers) {
  spec_.sequence_length = 512;
  const auto corpus = Open(std::string(199, 'x'));
  ASSERT_FALSE(corpus.ok());
  EXPECT_EQ(corpus.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(corpus.status().message()),
              AllOf(HasSubstr("train.txt holds 200 tokens, one row needs 513"),
                    HasSubstr("lower data.sequence_length")));
}

TEST_F(CorpusTest, ACorpusWithoutARowToTrainOnIsRefused) {
  spec_.holdout_fraction = 0.01;
  const auto corpus = Open("abcdefg");
  ASSERT_FALSE(corpus.ok());
  EXPECT_THAT(std::string(corpus.status().message()),
              HasSubstr("holds 8 tokens, one row to train on and one held out needs 9"));
}

TEST_F(CorpusTest, AnEmptyCorpusIsRefused) {
  const auto corpus = Open("\n\n\n");
  ASSERT_FALSE(corpus.ok());
  EXPECT_THAT(std::string(corpus.status().message()), HasSubstr("train.txt holds no text"));
}

TEST_F(CorpusTest, AnIdBeyondTheModelsVocabularyNamesBothSizes) {
  spec_.files = {folder_.Write("train.txt", LetterRows(3))};
  const auto corpus = OpenCorpus(spec_, *tokenizer_, 256);
  ASSERT_FALSE(corpus.ok());
  EXPECT_THAT(
      std::string(corpus.status().message()),
      HasSubstr("train.txt: the tokenizer gives token 256 of its 257, but the model has 256"));
}

TEST_F(CorpusTest, AByteOrderMarkDoesNotChangeTheTokens) {
  const auto with = MustOpen("\xEF\xBB\xBFone two\n");
  const auto without = MustOpen("one two\n");
  EXPECT_EQ(with->sha256(), without->sha256());
}

TEST_F(CorpusTest, TheHashTellsTextTokenizerAndPackingApart) {
  std::set<std::string> hashes;
  hashes.insert(MustOpen("abcdefghijklmnop")->sha256());
  EXPECT_EQ(MustOpen("abcdefghijklmnop")->sha256(), *hashes.begin());
  hashes.insert(MustOpen("abcdefghijklmnoq")->sha256());
  hashes.insert(MustOpen("abcdefgh\nijklmnop")->sha256());
  spec_.isolate_documents = false;
  hashes.insert(MustOpen("abcdefghijklmnop")->sha256());
  spec_.sequence_length = 5;
  hashes.insert(MustOpen("abcdefghijklmnop")->sha256());
  spec_.holdout_fraction = 0.5;
  hashes.insert(MustOpen("abcdefghijklmnop")->sha256());
  EXPECT_EQ(hashes.size(), 6u);
}

TEST_F(CorpusTest, SkippedRowsAndEmptyDocumentsAreCounted) {
  spec_.skip_bad_rows = true;
  spec_.files = {folder_.Write(
      "train.jsonl", "{\"text\":\"abcdefgh\"}\n{\"text\":\"\"}\n{\"text\":1}\n{bad\n[]\n")};
  const auto corpus = OpenCorpus(spec_, *tokenizer_, kVocabulary);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ((*corpus)->report().documents, 2);
  EXPECT_EQ((*corpus)->report().skipped_rows, 2);
  EXPECT_THAT((*corpus)->report().warnings,
              ElementsAre("1 empty documents were left out",
                          "1 texts are numbers in the file and were taken as they are spelt",
                          "1 bad rows were skipped: json-syntax",
                          "1 bad rows were skipped: not-an-object"));
}

}  // namespace
}  // namespace octavo::engine
