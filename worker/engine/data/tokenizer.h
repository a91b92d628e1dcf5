// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of UTF-8 text. With `added_tokens` control tokens that the text spells are
  // recognised; plain user text is encoded without. No BOS or EOS is added.
  struct EncodeOptions {
    bool added_tokens = false;
  };
  virtual void Encode(absl::string_view text, const EncodeOptions& options,
                      std::vector<int32_t>* ids) const = 0;
  // Invalid UTF-8 becomes U+FFFD.
  virtual std::string Decode(const std::vector<int32_t>& ids) const = 0;

  virtual int64_t vocabulary_size() const = 0;  // highest id + 1
  // Ends a document in a packed row.
  virtual int32_t end_of_document() const = 0;
  // Put before a document, as the tokenizer's post-processor says; -1: none.
  virtual int32_t begin_of_document() const = 0;
  virtual std::string sha256() const = 0;  // of what defines it
  // Bytes that Encode has dropped so far because the vocabulary has no symbol for them. Real
  // vocabularies lack some.
  virtual int64_t lost_bytes() const { return 0; }
};

// ids 0-255 are bytes, 256 ends a document.
std::unique_ptr<Tokenizer> MakeByteTokenizer();
// tokenizer.json (byte-level BPE; others are refused by name) of a model folder; the
// end-of-document token is the first of eos_token_id in generation_config.json or config.json, or
// the eos_token of tokenizer_config.json.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder);

// An id, or the text of a token that the file must have.
using EndOfDocument = std::variant<int32_t, std::string>;
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             const EndOfDocument& end_of_document);

}  // namespace octavo::engine
