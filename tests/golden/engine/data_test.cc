// What reading text for pretraining must give on the data golden: compressed files as a whole, and
// of the files of broken rows everything that does not concern conversations.
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/golden.h"
#include "worker/engine/data/byte_source.h"
#include "worker/engine/data/document_reader.h"
#include "worker/engine/data/json_row.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::GoldenFolder;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Reading {
  absl::Status status;
  std::vector<std::string> documents;
  DocumentCounts counts;
};

Reading Read(const std::string& file, bool skip_bad_rows) {
  Reading reading;
  DocumentOptions options;
  options.skip_bad_rows = skip_bad_rows;
  reading.status = ReadDocuments(
      GoldenFolder("data/" + file), options,
      [&](absl::string_view document) {
        reading.documents.emplace_back(document);
        return absl::OkStatus();
      },
      &reading.counts);
  return reading;
}

std::vector<Json> ReadCases(const std::string& list) {
  std::ifstream file(GoldenFolder("data/" + list));
  return Json::parse(file)["cases"].get<std::vector<Json>>();
}

TEST(DataGolden, CompressedFilesAreReadWholeOrRefused) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("data");
  for (const Json& golden : ReadCases("compression/expected.json")) {
    const std::string file = golden["file"];
    SCOPED_TRACE(file);
    const Reading reading = Read(file, false);
    if (golden["ok"] == true) {
      EXPECT_TRUE(reading.status.ok()) << reading.status;
      EXPECT_EQ(static_cast<int64_t>(reading.documents.size()), golden["accepted"]);
      EXPECT_EQ(Sha256Of(absl::StrJoin(reading.documents, std::string(1, '\0'))),
                golden["texts_sha256"].get<std::string>());
    } else if (golden["ok"] == false) {
      const std::string fault = golden["error"];
      const std::string message(reading.status.message());
      if (fault == "empty-dataset") {
        EXPECT_TRUE(reading.status.ok() && reading.documents.empty()) << "a corpus refuses it";
      } else if (fault == "unsupported-compression") {
        EXPECT_THAT(message, AnyOf(HasSubstr("bzip2"), HasSubstr("xz")));
      } else {
        EXPECT_EQ(reading.status.code(), absl::StatusCode::kDataLoss) << reading.status;
        EXPECT_THAT(message, HasSubstr(fault == "truncated" ? "ends inside its" : "is a broken"));
      }
    }
  }
}

// Cases that are about conversations, pre-tokenised rows or a line limit that is a constant here.
bool IsNotOurs(const std::string& file) {
  static const std::set<std::string> others = {
      "malformed/nested_in_string.jsonl", "malformed/json_string_duplicate.jsonl",
      "malformed/line_limit.jsonl", "malformed/two_shapes_in_one_row.jsonl",
      "malformed/too_long.jsonl"};
  return others.contains(file);
}

// Faults of a row whatever it holds, by the golden's names, which are ours too.
bool IsRowFault(const std::string& reason) {
  static const std::set<std::string> faults = {"json-syntax",   "encoding",   "duplicate-key",
                                               "not-an-object", "json-depth", "line-too-long"};
  return faults.contains(reason);
}

void ExpectFileError(const Json& fault, const Reading& reading) {
  const std::string kind = fault["kind"];
  if (kind == "empty-dataset") {
    EXPECT_TRUE(reading.status.ok() && reading.documents.empty()) << "a corpus refuses it";
    return;
  }
  ASSERT_FALSE(reading.status.ok());
  const std::string message(reading.status.message());
  if (kind == "encoding") {
    EXPECT_THAT(message, HasSubstr(fault["names"].get<std::string>()));
  } else if (kind == "pretty-printed") {
    EXPECT_THAT(message, HasSubstr("pretty-printed"));
  }
  if (fault.contains("line")) {
    // A file that is cut off ends on its last line, or behind it.
    const int line = fault["line"];
    EXPECT_THAT(message, AnyOf(HasSubstr(absl::StrCat(":", line, ":")),
                               AllOf(HasSubstr(absl::StrCat(":", line - 1, ":")),
                                     HasSubstr("the file is cut off"))));
  }
}

// Line `number` of a file, decompressed.
std::string LineOf(const std::string& file, int64_t number) {
  const std::string path = GoldenFolder("data/" + file);
  LineReader lines(*OpenByteSource(path), path);
  absl::string_view line;
  bool cut = false;
  while (lines.number() < number) EXPECT_TRUE(*lines.Next(&line, &cut));
  return std::string(line);
}

void ExpectRows(const Json& golden, const Reading& reading) {
  const std::string file = golden["file"];
  std::map<std::string, int64_t> faults;
  std::vector<std::string> texts;
  for (const Json& row : golden["rows"]) {
    if (row["status"] == "ok") {
      const Json& expected = row["expected"];
      if (expected["kind"] == "raw" && expected["segments"].size() == 1) {
        texts.push_back(expected["segments"][0]["text"]);
      }
      continue;
    }
    const std::string reason = row["reason"];
    if (!IsRowFault(reason)) continue;
    ++faults[reason];
    if (reason == "line-too-long") continue;
    const JsonRow parsed = ParseJsonRow(LineOf(file, row["line"]), "text");
    EXPECT_EQ(parsed.reason, reason) << "line " << row["line"];
    if (row.contains("column") && row["column"].is_number() && reason != "duplicate-key") {
      EXPECT_NEAR(parsed.column, row["column"].get<int64_t>(), 1) << parsed.message;
    }
  }
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.documents, texts);
  std::map<std::string, int64_t> found;
  for (const auto& [reason, count] : reading.counts.skipped) {
    if (IsRowFault(reason)) found[reason] = count;
  }
  EXPECT_EQ(found, faults);
}

TEST(DataGolden, RowsAreAcceptedOrRefusedForTheReasonAndAtThePlace) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("data");
  int64_t compared = 0;
  std::vector<std::string> skipped;
  for (const std::string list : {"malformed/cases.json", "shapes/expected.json"}) {
    for (const Json& golden : ReadCases(list)) {
      const std::string file = golden["file"];
      if (IsNotOurs(file)) {
        skipped.push_back(file);
        continue;
      }
      SCOPED_TRACE(file);
      const Reading reading = Read(file, true);
      if (golden.contains("file_error") && !golden["file_error"].is_null()) {
        ExpectFileError(golden["file_error"], reading);
      } else {
        ExpectRows(golden, reading);
      }
      ++compared;
    }
  }
  std::cout << compared << " files compared; skipped " << skipped.size()
            << " about conversations, tokens or another line limit: "
            << absl::StrJoin(skipped, ", ") << "\n";
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace octavo::engine
