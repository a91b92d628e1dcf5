// Byte-level BPE as tokenizer.json describes it: added tokens, normaliser, pre-tokenizers, merges.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/data/added_tokens.h"
#include "worker/engine/data/byte_pair_encoder.h"
#include "worker/engine/data/split_pattern.h"
#include "worker/engine/data/tokenizer.h"

namespace octavo::engine {

// Cuts what the stage before it left.
struct PreTokenizerStage {
  bool add_prefix_space = false;       // before a piece that starts without one
  std::unique_ptr<Splitter> splitter;  // null: does not cut
};

struct ByteLevelParts {
  bool normalize_nfc = false;
  std::vector<AddedToken> added_tokens;
  std::vector<PreTokenizerStage> stages;
  BytePairEncoder encoder;
  std::vector<std::string> token_bytes;  // by id; empty where the ids have a gap
  int32_t end_of_document = 0;
  int32_t begin_of_document = -1;
  std::string sha256;
};

class ByteLevelTokenizer final : public Tokenizer {
 public:
  explicit ByteLevelTokenizer(ByteLevelParts parts);

  void Encode(absl::string_view text, const EncodeOptions& options,
              std::vector<int32_t>* ids) const override;
  std::string Decode(const std::vector<int32_t>& ids) const override;
  int64_t vocabulary_size() const override {
    return static_cast<int64_t>(parts_.token_bytes.size());
  }
  int32_t end_of_document() const override { return parts_.end_of_document; }
  int32_t begin_of_document() const override { return parts_.begin_of_document; }
  std::string sha256() const override { return parts_.sha256; }
  int64_t lost_bytes() const override { return lost_bytes_; }

 private:
  std::string Normalize(absl::string_view text) const;
  void EncodeNormalized(absl::string_view text, std::vector<int32_t>* ids) const;
  void EncodeFromStage(size_t stage, absl::string_view text, std::vector<int32_t>* ids) const;

  const ByteLevelParts parts_;
  AddedTokenMatcher raw_tokens_;         // found in the text as it is
  AddedTokenMatcher normalized_tokens_;  // found in what raw_tokens_ left, normalised
  mutable std::atomic<int64_t> lost_bytes_ = 0;
};

}  // namespace octavo::engine
