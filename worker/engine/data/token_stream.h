// All documents of a corpus as one stream of tokens, and rows of it as batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "worker/engine/batch.h"
#include "worker/engine/data/tokenizer.h"

namespace octavo::engine {

// In memory: 4 bytes a token and 8 a document.
class TokenStream {
 public:
  // Appends the begin token where there is one, the text's tokens and the end token. Text is plain:
  // a control token that it spells is text. INVALID_ARGUMENT for an id beyond `vocabulary`.
  absl::Status Add(absl::string_view document, const Tokenizer& tokenizer, int64_t vocabulary);

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  // Gives back what growing took in advance.
  void ReleaseSpare() {
    tokens_.shrink_to_fit();
    starts_.shrink_to_fit();
  }
  int64_t bytes() const {
    return static_cast<int64_t>(tokens_.capacity() * sizeof(int32_t) +
                                starts_.capacity() * sizeof(int64_t));
  }
  int64_t documents() const { return static_cast<int64_t>(starts_.size()); }

  // Rows of `sequence` inputs. Row r reads tokens [r S, r S + S) and predicts [r S + 1, r S + S],
  // so every row needs one token behind it and no token is an input twice.
  int64_t Rows(int64_t sequence) const { return tokens() == 0 ? 0 : (tokens() - 1) / sequence; }

  // Appends row `row` to `batch`. Isolated: the end token of a document predicts nothing, positions
  // restart and nothing before the document's first token in this row is attended to. Otherwise
  // the row is one text.
  void AppendRow(int64_t row, bool isolate_documents, Batch* batch) const;

  void UpdateHash(Sha256* hash) const;

 private:
  std::vector<int32_t> tokens_;
  std::vector<int64_t> starts_;  // of documents, ascending
};

}  // namespace octavo::engine
