#include "worker/engine/inspect_corpus.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "worker/engine/data/byte_source.h"
#include "worker/engine/data/corpus.h"
#include "worker/engine/data/document_reader.h"

namespace octavo::engine {
namespace {

constexpr int64_t kSampleBytes = 1 << 20;  // of text, of each file
constexpr int64_t kMagicBytes = 8;         // that tell a compressed file

struct NamedFile {
  std::string field;  // path in the stage
  std::string path;
  int64_t text_bytes = 0;  // about, when unpacked
};

std::vector<NamedFile> FilesOf(const DataSpec& spec) {
  std::vector<NamedFile> files;
  for (size_t i = 0; i < spec.files.size(); ++i) {
    files.push_back({absl::StrCat("data.files[", i, "]"), spec.files[i]});
  }
  for (size_t i = 0; i < spec.holdout_files.size(); ++i) {
    files.push_back({absl::StrCat("data.holdout_files[", i, "]"), spec.holdout_files[i]});
  }
  return files;
}

absl::Status MeasureFile(NamedFile* file) {
  ASSIGN_OR_RETURN(const OpenFile opened, OpenFile::Open(file->path));
  std::string start(static_cast<size_t>(std::min(opened.bytes(), kMagicBytes)), '\0');
  RETURN_IF_ERROR(opened.ReadAt(0, static_cast<int64_t>(start.size()), start.data()));
  constexpr int64_t kUsualRatio = 4;  // text shrinks to about a quarter
  file->text_bytes = opened.bytes();
  if (IsCompressed(start)) file->text_bytes *= kUsualRatio;
  if (file->text_bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("reading ", file->path, ": it is empty"));
}

// Reads documents until they hold kSampleBytes.
absl::Status CheckFirstRows(const std::string& path, const DataSpec& spec) {
  int64_t bytes = 0;
  DocumentCounts counts;
  const absl::Status status = ReadDocuments(
      path,
      {.text_field = spec.text_field,
       .separator = spec.document_separator,
       .skip_bad_rows = spec.skip_bad_rows},
      [&](absl::string_view document) {
        bytes += static_cast<int64_t>(document.size());
        return bytes < kSampleBytes ? absl::OkStatus() : absl::CancelledError("enough");
      },
      &counts);
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

// Of each file about which nothing is known to be wrong.
void CheckSamples(const std::vector<NamedFile>& files, const DataSpec& spec,
                  CorpusInspection* inspection) {
  for (const NamedFile& file : files) {
    const bool known =
        std::any_of(inspection->problems.begin(), inspection->problems.end(),
                    [&](const InspectionProblem& problem) { return problem.field == file.field; });
    const absl::Status status = known ? absl::OkStatus() : CheckFirstRows(file.path, spec);
    if (!status.ok()) {
      inspection->problems.push_back({file.field, std::string(status.message())});
    }
  }
}

}  // namespace

CorpusInspection InspectCorpus(const DataSpec& spec, const Tokenizer* tokenizer,
                               int64_t vocabulary) {
  CorpusInspection inspection;
  std::vector<NamedFile> files = FilesOf(spec);
  int64_t bytes = 0;
  for (NamedFile& file : files) {
    const absl::Status status = MeasureFile(&file);
    if (!status.ok()) inspection.problems.push_back({file.field, std::string(status.message())});
    bytes += file.text_bytes;
  }
  if (bytes > kFullInspectionBytes) {
    inspection.warnings.push_back(
        absl::StrCat("the data files have more than ", kFullInspectionBytes >> 20,
                     " MiB: of each only the first rows were checked; tokens and epochs are not "
                     "known yet"));
  } else if (inspection.problems.empty() && tokenizer != nullptr && vocabulary != 0) {
    const auto corpus = OpenCorpus(spec, *tokenizer, vocabulary);
    if (corpus.ok()) {
      inspection.train_rows = (*corpus)->report().train_rows;
      inspection.host_bytes = (*corpus)->report().host_bytes;
      inspection.warnings = (*corpus)->report().warnings;
      return inspection;
    }
    inspection.problems.push_back(
        {FieldOfError(corpus.status()), std::string(corpus.status().message())});
  }
  CheckSamples(files, spec, &inspection);
  return inspection;
}

}  // namespace octavo::engine
