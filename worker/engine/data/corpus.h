// Training text, tokenised and packed into rows, in an order that is a pure function of (seed,
// epoch).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/batch.h"
#include "worker/engine/data/tokenizer.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

struct CorpusReport {
  int64_t documents = 0;
  int64_t tokens = 0;      // in all documents, with their end tokens
  int64_t host_bytes = 0;  // that the corpus holds in the host's memory
  int64_t train_rows = 0;
  int64_t holdout_rows = 0;
  int64_t skipped_rows = 0;  // bad rows, with skip_bad_rows
  std::vector<std::string> warnings;
};

class Corpus {
 public:
  virtual ~Corpus() = default;
  virtual const CorpusReport& report() const = 0;
  // Of files, tokenizer and packing options: what a resumed run must find unchanged.
  virtual std::string sha256() const = 0;

  // `rows` training rows from sample number `first_sample` of the endless sequence epoch 0, epoch
  // 1, ...; each epoch is a full permutation of the training rows.
  virtual Batch TrainBatch(uint64_t seed, int64_t first_sample, int64_t rows) const = 0;

  // Held-out rows [first_row, first_row + rows), clipped to what there is; always the same ones in
  // the same order. Those of a corpus without held-out files are drawn over all of its rows, so the
  // first few stand for every source.
  virtual Batch HoldoutBatch(int64_t first_row, int64_t rows) const = 0;
};

// INVALID_ARGUMENT for bad rows (file, line, key, remedy), an empty corpus, fewer tokens than one
// row, ids beyond `vocabulary`.
//
// FieldOfError names the file by its place in the spec.
absl::StatusOr<std::unique_ptr<Corpus>> OpenCorpus(const DataSpec& spec, const Tokenizer& tokenizer,
                                                   int64_t vocabulary);

// Of an error of OpenCorpus: "data.files[1]", or "data.files" where it is about all of them.
std::string FieldOfError(const absl::Status& status);

}  // namespace octavo::engine
