#include "worker/engine/data/document_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/utf8.h"
#include "worker/engine/data/byte_source.h"
#include "worker/engine/data/json_row.h"
#include "worker/engine/data/row_splitter.h"

namespace octavo::engine {
namespace {

using OnDocument = absl::FunctionRef<absl::Status(absl::string_view)>;

class DocumentReader {
 public:
  DocumentReader(const std::string& path, const DocumentOptions& options, OnDocument on_document,
                 DocumentCounts* counts)
      : path_(path), options_(options), on_document_(on_document), counts_(*counts) {}

  absl::Status ReadText(std::unique_ptr<ByteSource> source);
  absl::Status ReadRows(std::unique_ptr<ByteSource> source);

 private:
  absl::Status AddRow(absl::string_view row, int64_t line);
  absl::Status AddTextDocument(absl::string_view document, int64_t line);
  absl::Status AddDocument(absl::string_view document);
  absl::Status Bad(absl::string_view reason, int64_t line, int64_t column,
                   absl::string_view message);
  absl::Status AddWholeTextDocuments(std::string* text);

  const std::string& path_;
  const DocumentOptions& options_;
  OnDocument on_document_;
  DocumentCounts& counts_;
  int64_t text_line_ = 1;  // of the first byte of text that is not handed out
  size_t searched_ = 0;    // bytes of it in which no separator begins
};

absl::Status DocumentReader::AddDocument(absl::string_view document) {
  if (document.empty()) {
    ++counts_.empty;
    return absl::OkStatus();
  }
  ++counts_.documents;
  return on_document_(document);
}

absl::Status DocumentReader::Bad(absl::string_view reason, int64_t line, int64_t column,
                                 absl::string_view message) {
  if (options_.skip_bad_rows) {
    ++counts_.skipped[std::string(reason)];
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(path_, ":", line,
                                                 column > 0 ? absl::StrCat(":", column) : "",
                                                 ": the row ", message, " [", reason, "]"));
}

absl::Status DocumentReader::AddRow(absl::string_view row, int64_t line) {
  const JsonRow parsed = ParseJsonRow(row, options_.text_field);
  counts_.scanned_bytes += parsed.scanned_bytes;
  if (!parsed.reason.empty()) return Bad(parsed.reason, line, parsed.column, parsed.message);
  if (parsed.converted) ++counts_.converted;
  return AddDocument(parsed.text);
}

absl::Status DocumentReader::ReadRows(std::unique_ptr<ByteSource> source) {
  LineReader lines(std::move(source), path_);
  ArraySplitter array(path_);
  bool is_array = false;
  bool first = true;
  while (true) {
    absl::string_view line;
    bool cut = false;
    ASSIGN_OR_RETURN(const bool another, lines.Next(&line, &cut));
    if (!another) break;
    const absl::string_view trimmed = absl::StripAsciiWhitespace(line);
    if (trimmed.empty() && !is_array) continue;
    if (std::exchange(first, false)) {
      is_array = trimmed[0] == '[';
      if (trimmed == "{") {
        return absl::InvalidArgumentError(absl::StrCat(
            path_, ":", lines.number(), ": pretty-printed JSON: write one object per line"));
      }
    }
    if (cut) {
      const std::string limit =
          absl::StrCat("is longer than ", LineReader::kMostLineBytes, " bytes");
      if (is_array) return Bad("line-too-long", lines.number(), 0, limit);
      RETURN_IF_ERROR(Bad("line-too-long", lines.number(), 0, limit));
    } else if (is_array) {
      RETURN_IF_ERROR(
          array.Add(line, lines.number(),
                    [this](absl::string_view row, int64_t number) { return AddRow(row, number); }));
    } else {
      RETURN_IF_ERROR(AddRow(line, lines.number()));
    }
  }
  return is_array ? array.Finish() : absl::OkStatus();
}

absl::Status DocumentReader::AddTextDocument(absl::string_view document, int64_t line) {
  const size_t invalid = FindMalformedUtf8(document);
  if (invalid == document.npos) return AddDocument(document);
  const absl::string_view before = document.substr(0, invalid);
  const size_t line_end = before.rfind('\n');
  const size_t column = line_end == before.npos ? invalid + 1 : invalid - line_end;
  return Bad("encoding", line + std::count(before.begin(), before.end(), '\n'),
             static_cast<int64_t>(column), "is not UTF-8: convert the file");
}

// Hands out and removes the documents of `text` that a separator ends.
absl::Status DocumentReader::AddWholeTextDocuments(std::string* text) {
  if (options_.separator.empty()) return absl::OkStatus();
  const size_t length = options_.separator.size();
  size_t begin = 0;
  while (true) {
    const size_t end = text->find(options_.separator, searched_);
    counts_.scanned_bytes += std::min(end, text->size()) - searched_;
    if (end == std::string::npos) break;
    RETURN_IF_ERROR(
        AddTextDocument(absl::string_view(*text).substr(begin, end - begin), text_line_));
    text_line_ += std::count(text->begin() + begin, text->begin() + end + length, '\n');
    begin = searched_ = end + length;
  }
  text->erase(0, begin);
  // The last bytes may be the begin of a separator that the next chunk completes.
  searched_ = text->size() - std::min(text->size(), length - 1);
  return absl::OkStatus();
}

absl::Status DocumentReader::ReadText(std::unique_ptr<ByteSource> source) {
  std::string chunk(size_t{1} << 18, '\0');
  std::string text;
  bool first = true;
  bool held_return = false;  // a CR at the end of a chunk, of which the next byte decides
  while (true) {
    ASSIGN_OR_RETURN(const size_t read, source->Read(chunk.data(), chunk.size()));
    absl::string_view bytes(chunk.data(), read);
    if (read > 0 && std::exchange(first, false)) {
      RETURN_IF_ERROR(CheckEncoding(bytes, path_));
      bytes.remove_prefix(ByteOrderMarkLength(bytes));
    }
    for (const char c : bytes) {
      if (std::exchange(held_return, c == '\r') && c != '\n') text.push_back('\r');
      if (c != '\r') text.push_back(c);
    }
    if (read == 0) break;
    RETURN_IF_ERROR(AddWholeTextDocuments(&text));
    if (text.size() > static_cast<size_t>(kMostDocumentBytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has a document above ", kMostDocumentBytes,
                       " bytes: split it, and say how in data.document_separator"));
    }
  }
  if (held_return) text.push_back('\r');
  if (text.empty()) return absl::OkStatus();  // behind the last separator nothing is left out
  return AddTextDocument(text, text_line_);
}

}  // namespace

absl::Status ReadDocuments(const std::string& path, const DocumentOptions& options,
                           absl::FunctionRef<absl::Status(absl::string_view)> on_document,
                           DocumentCounts* counts) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, OpenByteSource(path));
  DocumentReader reader(path, options, on_document, counts);
  absl::string_view name = path;
  if (!absl::ConsumeSuffix(&name, ".gz")) absl::ConsumeSuffix(&name, ".zst");
  if (absl::EndsWith(name, ".txt")) return reader.ReadText(std::move(source));
  for (const absl::string_view ending : {".jsonl", ".ndjson", ".json"}) {
    if (absl::EndsWith(name, ending)) return reader.ReadRows(std::move(source));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, " is of no kind that is read: .txt, .jsonl, .ndjson or .json, also as .gz or .zst"));
}

}  // namespace octavo::engine
