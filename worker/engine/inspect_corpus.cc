#include "worker/engine/inspect_corpus.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status.h"
#include "worker/engine/data/corpus.h"

namespace octavo::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSampleBytes = 1 << 20;  // of each file
constexpr absl::string_view kGzip = "\x1F\x8B";
constexpr absl::string_view kZstandard = "\x28\xB5\x2F\xFD";

struct NamedFile {
  std::string field;  // path in the stage
  std::string path;
  int64_t bytes = 0;
};

std::vector<NamedFile> FilesOf(const DataPlan& plan) {
  std::vector<NamedFile> files;
  for (size_t i = 0; i < plan.files.size(); ++i) {
    files.push_back({absl::StrCat("data.files[", i, "]"), plan.files[i]});
  }
  for (size_t i = 0; i < plan.holdout_files.size(); ++i) {
    files.push_back({absl::StrCat("data.holdout_files[", i, "]"), plan.holdout_files[i]});
  }
  return files;
}

absl::Status OpenFile(NamedFile* file) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> mapped, MappedFile::Open(file->path));
  file->bytes = static_cast<int64_t>(mapped->data().size());
  if (file->bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("reading ", file->path, ": it is empty"));
}

// The first rows of a file: up to its last whole line within the sample, or else whole character.
absl::string_view FirstRows(absl::string_view data) {
  if (data.size() <= kSampleBytes) return data;
  data = data.substr(0, kSampleBytes);
  const size_t line_end = data.rfind('\n');
  if (line_end != absl::string_view::npos) return data.substr(0, line_end + 1);
  while (data.size() > 1 && (static_cast<uint8_t>(data.back()) & 0xC0) == 0x80) {
    data.remove_suffix(1);
  }
  return data.substr(0, data.size() - 1);
}

// The problem belongs to the file that its message names.
InspectionProblem ProblemOf(const absl::Status& status, const std::vector<NamedFile>& files) {
  for (const NamedFile& file : files) {
    if (absl::StrContains(status.message(), file.path)) {
      return {file.field, std::string(status.message())};
    }
  }
  return {"data.files", std::string(status.message())};
}

// A folder in which a file's first rows lie under its own name while they are checked.
class SampleFolder {
 public:
  SampleFolder() : path_(fs::temp_directory_path() / ("octavo-sample-" + RandomHex(8))) {}
  ~SampleFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  absl::StatusOr<std::string> Write(const std::string& source) const {
    RETURN_IF_ERROR(MakeFolders(path_));
    ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> mapped, MappedFile::Open(source));
    const std::string sample = path_ / fs::path(source).filename();
    RETURN_IF_ERROR(WriteFileAtomically(sample, FirstRows(mapped->data())));
    return sample;
  }

 private:
  fs::path path_;
};

bool IsCompressed(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<MappedFile>> mapped = MappedFile::Open(path);
  return mapped.ok() && (absl::StartsWith((*mapped)->data(), kGzip) ||
                         absl::StartsWith((*mapped)->data(), kZstandard));
}

// Opens the file's first rows as if they were the whole corpus.
absl::Status CheckFirstRows(const NamedFile& file, const DataPlan& plan, const Tokenizer& tokenizer,
                            int64_t vocabulary) {
  const SampleFolder folder;
  ASSIGN_OR_RETURN(const std::string sample, folder.Write(file.path));
  DataPlan sampled = plan;
  sampled.files = {sample};
  sampled.holdout_files.clear();
  sampled.holdout_fraction = 0;
  const absl::Status status = OpenCorpus(sampled, tokenizer, vocabulary).status();
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{sample, file.path}}));
}

void CheckSamples(const std::vector<NamedFile>& files, const DataPlan& plan,
                  const Tokenizer& tokenizer, int64_t vocabulary, CorpusInspection* inspection) {
  bool compressed = false;
  for (const NamedFile& file : files) {
    if (IsCompressed(file.path)) {
      compressed = true;
      continue;
    }
    const absl::Status status = CheckFirstRows(file, plan, tokenizer, vocabulary);
    if (!status.ok()) {
      inspection->problems.push_back({file.field, std::string(status.message())});
    }
  }
  inspection->warnings.push_back(absl::StrCat(
      "the data files have more than ", kFullInspectionBytes >> 20,
      " MiB: of each only the first rows were checked",
      compressed ? ", of compressed ones none" : "", "; tokens and epochs are not known yet"));
}

}  // namespace

CorpusInspection InspectCorpus(const DataPlan& plan, const Tokenizer* tokenizer,
                               int64_t vocabulary) {
  CorpusInspection inspection;
  std::vector<NamedFile> files = FilesOf(plan);
  int64_t bytes = 0;
  for (NamedFile& file : files) {
    const absl::Status status = OpenFile(&file);
    if (!status.ok()) inspection.problems.push_back({file.field, std::string(status.message())});
    bytes += file.bytes;
  }
  if (!inspection.problems.empty() || tokenizer == nullptr || vocabulary == 0) return inspection;
  if (bytes > kFullInspectionBytes) {
    CheckSamples(files, plan, *tokenizer, vocabulary, &inspection);
    return inspection;
  }
  const auto corpus = OpenCorpus(plan, *tokenizer, vocabulary);
  if (!corpus.ok()) {
    inspection.problems.push_back(ProblemOf(corpus.status(), files));
    return inspection;
  }
  inspection.train_rows = (*corpus)->report().train_rows;
  inspection.warnings = (*corpus)->report().warnings;
  return inspection;
}

}  // namespace octavo::engine
