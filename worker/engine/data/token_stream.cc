#include "worker/engine/data/token_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace octavo::engine {

absl::Status TokenStream::Add(absl::string_view document, const Tokenizer& tokenizer,
                              int64_t vocabulary) {
  const int64_t start = tokens();
  if (tokenizer.begin_of_document() >= 0) tokens_.push_back(tokenizer.begin_of_document());
  tokenizer.Encode(document, {.added_tokens = false}, &tokens_);
  tokens_.push_back(tokenizer.end_of_document());
  starts_.push_back(start);
  for (int64_t i = start; i < tokens(); ++i) {
    if (tokens_[i] < 0 || tokens_[i] >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tokenizer gives token ", tokens_[i], " of its ", tokenizer.vocabulary_size(),
          ", but the model has ", vocabulary,
          " embeddings: use the model's own tokenizer, or a model with vocab_size of at least ",
          tokenizer.vocabulary_size()));
    }
  }
  return absl::OkStatus();
}

void TokenStream::AppendRow(int64_t row, bool isolate_documents, Batch* batch) const {
  const int64_t sequence = batch->sequence;
  const int64_t first = row * sequence;
  const int32_t row_offset = static_cast<int32_t>(batch->ids.size());
  auto next_start = std::upper_bound(starts_.begin(), starts_.end(), first);
  int32_t document_begin = 0;  // within the row
  for (int32_t i = 0; i < sequence; ++i) {
    const int64_t at = first + i;
    if (isolate_documents && next_start != starts_.end() && *next_start == at) {
      document_begin = i;
      ++next_start;
    }
    const bool ends_document =
        isolate_documents && next_start != starts_.end() && *next_start == at + 1;
    batch->ids.push_back(tokens_[at]);
    batch->targets.push_back(ends_document ? kMasked : tokens_[at + 1]);
    batch->positions.push_back(i - document_begin);
    batch->attend_from.push_back(row_offset + document_begin);
  }
  ++batch->rows;
}

void TokenStream::UpdateHash(Sha256* hash) const {
  const int64_t sizes[] = {tokens(), documents()};
  hash->Update(sizes, sizeof(sizes));
  hash->Update(tokens_.data(), tokens_.size() * sizeof(tokens_[0]));
  hash->Update(starts_.data(), starts_.size() * sizeof(starts_[0]));
}

}  // namespace octavo::engine
