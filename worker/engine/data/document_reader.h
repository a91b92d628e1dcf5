// Documents of a text or JSON lines file, one after the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

struct DocumentOptions {
  std::string text_field = "text";
  std::string separator;  // of documents in a .txt file; empty: the file is one document
  bool skip_bad_rows = false;
};

struct DocumentCounts {
  int64_t documents = 0;                   // handed out
  int64_t empty = 0;                       // left out: they hold nothing to learn
  int64_t converted = 0;                   // texts that are numbers in the file
  std::map<std::string, int64_t> skipped;  // bad rows by reason
  // Bytes that the search for separators and the parser of rows looked at: the work that a hostile
  // file could blow up. Stays below twice the text's length.
  int64_t scanned_bytes = 0;
};

// No document is larger: normalising counts in 32 bits.
inline constexpr int64_t kMostDocumentBytes = int64_t{1} << 30;

// By the name, before .gz or .zst: .txt is text, of which CR LF becomes LF; .jsonl, .ndjson and
// .json are one object per line, or one array of objects. A byte order mark is left out. A row that
// cannot be used is INVALID_ARGUMENT with file, line and column, or is counted.
absl::Status ReadDocuments(const std::string& path, const DocumentOptions& options,
                           absl::FunctionRef<absl::Status(absl::string_view)> on_document,
                           DocumentCounts* counts);

}  // namespace octavo::engine
