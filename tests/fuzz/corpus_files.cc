#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tests/fuzz/targets.h"
#include "worker/engine/data/byte_source.h"
#include "worker/engine/data/document_reader.h"
#include "worker/engine/data/json_row.h"

namespace octavo::fuzz {
namespace {

using Json = nlohmann::json;

// nlohmann's reader refuses numbers that no double holds and takes a zero byte for the end: such
// rows are not compared with it.
bool IsReadOtherwise(absl::string_view row) {
  return row.find('\0') != row.npos || row.find_first_of("eE") != row.npos ||
         std::count_if(row.begin(), row.end(), [](char c) { return c >= '0' && c <= '9'; }) > 300;
}

// A file of this process, for readers that want a path.
std::string PathOf(absl::string_view ending) {
  const char* const folder = std::getenv("TMPDIR");
  return absl::StrCat(folder != nullptr ? folder : "/tmp", "/octavo-fuzz-", getpid(), ending);
}

}  // namespace

void Row(absl::string_view bytes) {
  const engine::JsonRow row = engine::ParseJsonRow(bytes, "text");
  CHECK(row.scanned_bytes <= static_cast<int64_t>(bytes.size()));
  CHECK(row.column >= 0 && row.column <= static_cast<int64_t>(bytes.size()) + 1);
  CHECK(FindMalformedUtf8(row.text) == std::string::npos);
  if (row.reason == "json-depth" || IsReadOtherwise(bytes)) return;
  const Json parsed = Json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  if (row.reason.empty()) {
    CHECK(parsed.is_object() && parsed.contains("text"));
    if (!row.converted) CHECK(parsed["text"] == row.text);
  }
  if (row.reason == "json-syntax" || row.reason == "encoding") CHECK(parsed.is_discarded());
  if (row.reason == "missing-key") CHECK(parsed.is_object());
}

void Documents(absl::string_view bytes) {
  static constexpr absl::string_view kEndings[] = {".txt", ".jsonl"};
  if (bytes.empty()) return;
  const auto kind = static_cast<unsigned char>(bytes[0]);
  const std::string path = PathOf(kEndings[kind & 1]);
  bytes.remove_prefix(1);
  std::ofstream(path, std::ios::binary) << bytes;
  const engine::DocumentOptions options = {.separator = (kind & 2) != 0 ? "ab\n" : "",
                                           .skip_bad_rows = (kind & 4) != 0};
  engine::DocumentCounts counts;
  int64_t documents = 0;
  const absl::Status status = engine::ReadDocuments(
      path, options,
      [&](absl::string_view document) {
        ++documents;
        CHECK(!document.empty() && FindMalformedUtf8(document) == document.npos);
        return absl::OkStatus();
      },
      &counts);
  CHECK(counts.documents == documents);
  if (!engine::IsCompressed(bytes)) {
    CHECK(counts.scanned_bytes <= 2 * static_cast<int64_t>(bytes.size()));
  }
  if (!status.ok()) CHECK(absl::StrContains(status.message(), path));
  unlink(path.c_str());
}

}  // namespace octavo::fuzz
