#include "worker/engine/data/document_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class DocumentReaderTest : public ::testing::Test {
 protected:
  absl::Status Read(const std::string& name, const std::string& content) {
    documents_.clear();
    counts_ = {};
    return ReadDocuments(
        folder_.Write(name, content), options_,
        [this](absl::string_view document) {
          documents_.emplace_back(document);
          return absl::OkStatus();
        },
        &counts_);
  }
  std::string Error(const std::string& name, const std::string& content) {
    const absl::Status status = Read(name, content);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  TemporaryFolder folder_;
  DocumentOptions options_;
  std::vector<std::string> documents_;
  DocumentCounts counts_;
};

TEST_F(DocumentReaderTest, ATextFileIsOneDocument) {
  ASSERT_TRUE(Read("a.txt", "\xEF\xBB\xBFone\r\ntwo\rthree\n").ok());
  EXPECT_THAT(documents_, ElementsAre("one\ntwo\rthree\n"));
}

TEST_F(DocumentReaderTest, ASeparatorCutsDocumentsAcrossChunks) {
  options_.separator = "<|end|>";
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    expected.push_back(std::string(i % 300 + 1, 'x'));
    text += expected.back() + "<|end|>";
  }
  ASSERT_TRUE(Read("a.txt", text + "last").ok());
  expected.push_back("last");
  EXPECT_EQ(documents_, expected);
}

TEST_F(DocumentReaderTest, RowsMayEndInAnyWay) {
  ASSERT_TRUE(
      Read("a.jsonl", "\xEF\xBB\xBF{\"text\":\"a\"}\r\n\n  {\"text\":\"b\"} \n{\"text\":\"c\"}")
          .ok());
  EXPECT_THAT(documents_, ElementsAre("a", "b", "c"));
}

TEST_F(DocumentReaderTest, AnArrayIsReadLikeRows) {
  ASSERT_TRUE(Read("a.json", "[\n {\"text\": \"a]\\\"\"},\n {\n\"text\": \"b\"}\n]\n").ok());
  EXPECT_THAT(documents_, ElementsAre("a]\"", "b"));
  ASSERT_TRUE(Read("a.json", "[]").ok());
  EXPECT_THAT(documents_, IsEmpty());
  EXPECT_THAT(Error("a.json", "[{\"text\":\"a\"},\n]"), HasSubstr("a.json:2:1: the array"));
  EXPECT_THAT(Error("a.json", "[{\"text\":\"a\"}\n"), HasSubstr("not closed"));
  EXPECT_THAT(Error("a.json", "[{\"text\":\"a\"}]\n x"), HasSubstr("a.json:2:2: the array"));
}

TEST_F(DocumentReaderTest, CompressionIsRecognisedByContent) {
  const std::string rows = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {"a.jsonl", Gzip(rows)},
           {"a.jsonl.zst", Gzip(rows)},
           {"a.jsonl.gz", Zstd(rows)},
           {"a.jsonl.gz", rows},
           {"a.jsonl.gz", Gzip(rows.substr(0, 17)) + Gzip("") + Gzip(rows.substr(17))},
           {"a.jsonl.gz", Gzip(rows) + std::string(512, '\0')},
           {"a.jsonl.zst", Zstd(rows.substr(0, 17)) + Zstd(rows.substr(17))}}) {
    ASSERT_TRUE(Read(name, content).ok()) << name;
    EXPECT_THAT(documents_, ElementsAre("a", "b"));
  }
}

TEST_F(DocumentReaderTest, AStreamThatIsCutOffIsAnErrorAtEveryByte) {
  const std::string rows = "{\"text\":\"some words to compress, some words\"}\n";
  for (const std::string& whole : {Gzip(rows), Zstd(rows)}) {
    for (size_t size = 4; size < whole.size(); ++size) {
      const absl::Status status = Read("a.jsonl.gz", whole.substr(0, size));
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << " " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("a.jsonl.gz ends inside its"));
    }
  }
}

TEST_F(DocumentReaderTest, ManySmallMembersAreReadAsOneText) {
  std::string file;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += static_cast<char>('a' + i % 26);
    file += i % 2 == 0 ? Gzip(text.substr(i)) : Gzip(text.substr(i)) + Gzip("");
  }
  ASSERT_TRUE(Read("a.txt", file).ok());
  EXPECT_THAT(documents_, ElementsAre(text));
}

TEST_F(DocumentReaderTest, AZstdWindowAboveTheLimitIsNamedWithTheRemedy) {
  const auto with_window = [](int log) {
    const std::string rows = "{\"text\":\"a\"}\n";
    ZSTD_CCtx* const context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    std::string out(256, '\0');
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    // Streamed, so that the header gives the window and not the content's size.
    ZSTD_inBuffer from = {rows.data(), rows.size(), 0};
    ZSTD_compressStream2(context, &to, &from, ZSTD_e_flush);
    EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0u);
    ZSTD_freeCCtx(context);
    return out.substr(0, to.pos);
  };
  ASSERT_TRUE(Read("a.jsonl.zst", with_window(27)).ok());
  EXPECT_THAT(documents_, ElementsAre("a"));
  for (const std::string& file : {with_window(28), with_window(27) + with_window(28)}) {
    const absl::Status status = Read("a.jsonl.zst", file);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("268435456 bytes of memory to decompress, the limit is 134217728"),
                      HasSubstr("zstd -d --long=31")));
  }
}

TEST_F(DocumentReaderTest, ABadRowNamesFileLineAndColumn) {
  const std::string good = "{\"text\":\"a\"}\n";
  EXPECT_THAT(Error("a.jsonl", good + "\n{\"text\": nope}\n"),
              AllOf(HasSubstr("a.jsonl:3:10: the row not JSON"), HasSubstr("[json-syntax]")));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"\\ud800\"}"), HasSubstr("a.jsonl:1:"));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"\xFF\"}"),
              HasSubstr("a.jsonl:1:10: the row is not UTF-8"));
  EXPECT_THAT(Error("a.jsonl", "{\"words\":\"a\"}"), HasSubstr("set data.text_field"));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":null}"), HasSubstr("no text at the key \"text\""));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":[\"a\"]}"), HasSubstr("an array at the key \"text\""));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"a\",\"te\\u0078t\":\"b\"}"),
              HasSubstr("the key \"text\" is there twice"));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"a\",\"m\":{\"k\":1,\"k\":2}}"),
              HasSubstr("the key \"k\" is there twice"));
  EXPECT_THAT(Error("a.jsonl", "{\n\"text\":\"a\"\n}\n"), HasSubstr("pretty-printed"));
  EXPECT_THAT(Error("a.txt", "one\ntwo \xC3("), HasSubstr("a.txt:2:5: the row is not UTF-8"));
}

TEST_F(DocumentReaderTest, BadRowsAreCountedByReasonWhenSkipped) {
  options_.skip_bad_rows = true;
  ASSERT_TRUE(Read("a.jsonl", "1\n{\"text\":\"a\"}\n{\n{]\n{\"text\":true}\n\"x\"\n").ok());
  EXPECT_THAT(documents_, ElementsAre("a"));
  EXPECT_THAT(counts_.skipped, UnorderedElementsAre(Pair("not-an-object", 2),
                                                    Pair("json-syntax", 2), Pair("wrong-type", 1)));
}

TEST_F(DocumentReaderTest, NumbersOfAnySizeAreLegalBesideTheText) {
  ASSERT_TRUE(
      Read("a.jsonl",
           "{\"x\":1e400,\"y\":[-2E+999],\"text\":\"a\"}\n{\"text\":2.50}\n{\"text\":1e400}\n")
          .ok());
  EXPECT_THAT(documents_, ElementsAre("a", "2.50", "1e400"));
}

TEST_F(DocumentReaderTest, NumbersAndEscapesAreReadAsTheStandardSays) {
  ASSERT_TRUE(Read("a.jsonl",
                   "{\"x\":[-0,0.5,1E+2,1e-2,{}],\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t"
                   "\\u00e9\\u20AC\\ud83d\\ude00\"}\n")
                  .ok());
  EXPECT_THAT(documents_, ElementsAre("\"\\/\b\f\n\r\t\u00e9\u20ac\U0001f600"));
  for (const char* const bad : {"01",
                                "+1",
                                ".5",
                                "1.",
                                "1e",
                                "1e+",
                                "-",
                                "0x10",
                                "nul",
                                "nulls",
                                "True",
                                "[1,]",
                                "[1 2]",
                                "[",
                                "{\"a\":1,}",
                                "{\"a\" 1}",
                                "{a:1}",
                                "{\"a\":1]",
                                "\"\\x\"",
                                "\"\\u12g4\"",
                                "\"\t\"",
                                "\"\\ud800\"",
                                "\"\\ud800\\n\"",
                                "\"\\ud800\\ud800\"",
                                "\"\\udc00\"",
                                "-NaN",
                                "nan"}) {
    EXPECT_THAT(Error("a.jsonl", absl::StrCat("{\"text\":\"a\",\"x\":", bad, "}")),
                HasSubstr("[json-syntax]"))
        << bad;
  }
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"a\"} {}"), HasSubstr("a.jsonl:1:14: the row not JSON"));
}

TEST_F(DocumentReaderTest, NotANumberIsRefusedByItsName) {
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"a\",\"loss\":NaN}"),
              HasSubstr("a.jsonl:1:20: the row not JSON: NaN is no value of JSON; write null"));
  EXPECT_THAT(Error("a.jsonl", "{\"text\":\"a\",\"loss\":-Infinity}"), HasSubstr("-Infinity is"));
}

// The work is counted and not timed: each would be a hundred times its file if bytes were looked at
// again for every number or chunk.
TEST_F(DocumentReaderTest, TheWorkGrowsWithTheFileAndNotWithItsSquare) {
  std::string row = "{\"x\":[";
  for (int i = 0; i < 20000; ++i) row += "1e999,";
  row += "0],\"text\":\"a\"}\n";
  ASSERT_TRUE(Read("a.jsonl", row).ok());
  EXPECT_LE(counts_.scanned_bytes, static_cast<int64_t>(row.size()));
  EXPECT_GE(counts_.scanned_bytes, static_cast<int64_t>(row.size()) - 2);

  options_.separator = "<|end|>";
  const std::string text(size_t{32} << 20, '<');  // 128 chunks
  ASSERT_TRUE(Read("a.txt", text).ok());
  EXPECT_EQ(documents_, std::vector<std::string>{text});
  EXPECT_GE(counts_.scanned_bytes, static_cast<int64_t>(text.size()));
  EXPECT_LE(counts_.scanned_bytes, static_cast<int64_t>(text.size()) + 128 * 7);
}

TEST_F(DocumentReaderTest, ASeparatorIsFoundWhereverAChunkEnds) {
  constexpr size_t kChunk = size_t{1} << 18;
  options_.separator = "abc";
  for (size_t before = kChunk - 4; before <= kChunk + 1; ++before) {
    ASSERT_TRUE(Read("a.txt", std::string(before, 'a') + "abc" + "tail").ok());
    EXPECT_THAT(documents_, ElementsAre(std::string(before, 'a'), "tail")) << before;
  }
}

TEST_F(DocumentReaderTest, NestingHasALimit) {
  const auto nested = [](int levels) {
    return "{\"text\":\"a\",\"x\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  ASSERT_TRUE(Read("a.jsonl", nested(64)).ok());
  EXPECT_THAT(Error("a.jsonl", nested(100000)), HasSubstr("nested deeper than 256 levels"));
}

TEST_F(DocumentReaderTest, ALineAboveTheLimitIsRefusedOrSkipped) {
  const std::string big = "{\"text\":\"" + std::string(size_t{65} << 20, 'x') + "\"}";
  const std::string file = Gzip("{\"text\":\"a\"}\n" + big + "\n{\"text\":\"b\"}\n");
  EXPECT_THAT(Error("a.jsonl.gz", file),
              HasSubstr("a.jsonl.gz:2: the row is longer than 67108864"));
  options_.skip_bad_rows = true;
  ASSERT_TRUE(Read("a.jsonl.gz", file).ok());
  EXPECT_THAT(documents_, ElementsAre("a", "b"));
  EXPECT_THAT(counts_.skipped, ElementsAre(Pair("line-too-long", 1)));
}

TEST_F(DocumentReaderTest, OtherEncodingsCompressionsAndKindsAreRefusedByName) {
  EXPECT_THAT(Error("a.jsonl", std::string("\xFF\xFE{\0", 4)), HasSubstr("UTF-16LE"));
  EXPECT_THAT(Error("a.txt", std::string("\0a\0b", 4)), HasSubstr("UTF-16BE"));
  EXPECT_THAT(Error("a.jsonl", "BZh91AY"), HasSubstr("bzip2"));
  EXPECT_THAT(Error("a.parquet", "PAR1"), HasSubstr("is of no kind that is read: .txt, .jsonl"));
  EXPECT_EQ(ReadDocuments(
                folder_.At("none.txt"), options_,
                [](absl::string_view) { return absl::OkStatus(); }, &counts_)
                .code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace octavo::engine
