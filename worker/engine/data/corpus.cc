#include "worker/engine/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status.h"
#include "worker/engine/data/document_reader.h"
#include "worker/engine/data/permutation.h"
#include "worker/engine/data/token_stream.h"

namespace octavo::engine {
namespace {

constexpr absl::string_view kFieldPayload = "octavo/field";
constexpr absl::string_view kFiles = "data.files";
constexpr absl::string_view kHoldoutFiles = "data.holdout_files";

// The same held-out rows for every seed of a job, so that runs of several seeds compare.
constexpr uint64_t kHoldoutSeed = 0;

absl::Status WithField(absl::Status status, absl::string_view field) {
  status.SetPayload(kFieldPayload, absl::Cord(field));
  return status;
}

class PackedCorpus final : public Corpus {
 public:
  PackedCorpus(const DataSpec& spec, const Tokenizer& tokenizer, int64_t vocabulary)
      : spec_(spec), tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  absl::Status Open() {
    const int64_t lost_before = tokenizer_.lost_bytes();
    RETURN_IF_ERROR(Read(kFiles, spec_.files, &stream_));
    RETURN_IF_ERROR(Read(kHoldoutFiles, spec_.holdout_files, &holdout_stream_));
    Warn(counts_.empty, " empty documents were left out");
    Warn(counts_.converted, " texts are numbers in the file and were taken as they are spelt");
    Warn(tokenizer_.lost_bytes() - lost_before,
         " bytes were lost because the tokenizer has no symbol for them");
    for (const auto& [reason, rows] : counts_.skipped) {
      report_.skipped_rows += rows;
      Warn(rows, absl::StrCat(" bad rows were skipped: ", reason));
    }
    report_.documents = stream_.documents() + holdout_stream_.documents();
    report_.tokens = stream_.tokens() + holdout_stream_.tokens();
    stream_.ReleaseSpare();
    holdout_stream_.ReleaseSpare();
    report_.host_bytes = stream_.bytes() + holdout_stream_.bytes();
    RETURN_IF_ERROR(DivideRows());
    sha256_ = Hash();
    return absl::OkStatus();
  }

  const CorpusReport& report() const override { return report_; }
  std::string sha256() const override { return sha256_; }

  Batch TrainBatch(uint64_t seed, int64_t first_sample, int64_t rows) const override {
    Batch batch;
    batch.sequence = spec_.sequence_length;
    for (int64_t sample = first_sample; sample < first_sample + rows; ++sample) {
      const Permutation order(report_.train_rows, seed, sample / report_.train_rows);
      stream_.AppendRow(TrainRow(order[sample % report_.train_rows]), spec_.isolate_documents,
                        &batch);
    }
    return batch;
  }

  Batch HoldoutBatch(int64_t first_row, int64_t rows) const override {
    Batch batch;
    batch.sequence = spec_.sequence_length;
    const int64_t end = std::min(first_row + rows, report_.holdout_rows);
    const bool own_files = !spec_.holdout_files.empty();
    for (int64_t row = first_row; row < end; ++row) {
      const TokenStream& stream = own_files ? holdout_stream_ : stream_;
      stream.AppendRow(own_files ? row : held_out_[row], spec_.isolate_documents, &batch);
    }
    return batch;
  }

 private:
  // Row of stream_ that is training row `index`.
  int64_t TrainRow(int64_t index) const {
    const auto above =
        std::upper_bound(train_rows_before_.begin(), train_rows_before_.end(), index);
    return index + (above - train_rows_before_.begin());
  }

  absl::Status Read(absl::string_view field, const std::vector<std::string>& files,
                    TokenStream* stream) {
    const DocumentOptions options = {.text_field = spec_.text_field,
                                     .separator = spec_.document_separator,
                                     .skip_bad_rows = spec_.skip_bad_rows};
    for (size_t i = 0; i < files.size(); ++i) {
      const absl::Status status = ReadDocuments(
          files[i], options,
          [&](absl::string_view document) {
            return Annotate(stream->Add(document, tokenizer_, vocabulary_), files[i]);
          },
          &counts_);
      if (!status.ok()) return WithField(status, absl::StrCat(field, "[", i, "]"));
    }
    return absl::OkStatus();
  }

  void Warn(int64_t count, absl::string_view what) {
    if (count > 0) report_.warnings.push_back(absl::StrCat(count, what));
  }

  absl::Status TooSmall(const TokenStream& stream, int64_t needed, absl::string_view what) const {
    const bool is_holdout = &stream == &holdout_stream_;
    const int64_t tokens = stream.tokens();
    const auto& files = is_holdout ? spec_.holdout_files : spec_.files;
    std::string holds = absl::StrCat("holds ", tokens, " tokens");
    if (tokens == 0) holds = "holds no text";
    if (report_.skipped_rows > 0) {
      absl::StrAppend(&holds, " after ", report_.skipped_rows, " bad rows were skipped");
    }
    return WithField(absl::InvalidArgumentError(
                         absl::StrCat(absl::StrJoin(files, ", "), " ", holds, ", ", what, " needs ",
                                      needed, ": add text or lower data.sequence_length")),
                     is_holdout ? kHoldoutFiles : kFiles);
  }

  absl::Status DivideRows() {
    const int64_t sequence = spec_.sequence_length;
    const int64_t rows = stream_.Rows(sequence);
    if (rows < 1) return TooSmall(stream_, sequence + 1, "one row");
    if (!spec_.holdout_files.empty()) {
      report_.holdout_rows = holdout_stream_.Rows(sequence);
      if (report_.holdout_rows < 1) {
        return TooSmall(holdout_stream_, sequence + 1, "one row");
      }
    } else if (spec_.holdout_fraction > 0) {
      const double share = std::floor(static_cast<double>(rows) * spec_.holdout_fraction);
      report_.holdout_rows = std::max(int64_t{1}, static_cast<int64_t>(share));
      if (rows - report_.holdout_rows < 1) {
        return TooSmall(stream_, 2 * sequence + 1, "one row to train on and one held out");
      }
      DrawHeldOutRows(rows);
    }
    report_.train_rows = rows - static_cast<int64_t>(held_out_.size());
    return absl::OkStatus();
  }

  void DrawHeldOutRows(int64_t rows) {
    const Permutation order(rows, kHoldoutSeed, /*epoch=*/0);
    for (int64_t i = 0; i < report_.holdout_rows; ++i) held_out_.push_back(order[i]);
    train_rows_before_ = held_out_;
    std::sort(train_rows_before_.begin(), train_rows_before_.end());
    for (size_t i = 0; i < train_rows_before_.size(); ++i) {
      train_rows_before_[i] -= static_cast<int64_t>(i);
    }
  }

  std::string Hash() const {
    Sha256 hash;
    const std::string options = absl::StrCat(
        "sequence ", spec_.sequence_length, " isolated ", spec_.isolate_documents, " train rows ",
        report_.train_rows, " held out ", report_.holdout_rows, " tokenizer ", tokenizer_.sha256());
    hash.Update(options.data(), options.size());
    hash.Update(held_out_.data(), held_out_.size() * sizeof(held_out_[0]));
    stream_.UpdateHash(&hash);
    holdout_stream_.UpdateHash(&hash);
    return hash.Finish();
  }

  const DataSpec spec_;
  const Tokenizer& tokenizer_;  // used by Open only
  const int64_t vocabulary_;
  TokenStream stream_;
  TokenStream holdout_stream_;              // of holdout_files
  std::vector<int64_t> held_out_;           // rows of stream_, as drawn
  std::vector<int64_t> train_rows_before_;  // before each of them, ascending
  DocumentCounts counts_;
  CorpusReport report_;
  std::string sha256_;
};

}  // namespace

std::string FieldOfError(const absl::Status& status) {
  return std::string(status.GetPayload(kFieldPayload).value_or(absl::Cord(kFiles)));
}

absl::StatusOr<std::unique_ptr<Corpus>> OpenCorpus(const DataSpec& spec, const Tokenizer& tokenizer,
                                                   int64_t vocabulary) {
  if (spec.sequence_length < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.sequence_length is ", spec.sequence_length, ", the least is 2"));
  }
  if (spec.files.empty()) return absl::InvalidArgumentError("data.files is empty");
  auto corpus = std::make_unique<PackedCorpus>(spec, tokenizer, vocabulary);
  RETURN_IF_ERROR(corpus->Open());
  return corpus;
}

}  // namespace octavo::engine
