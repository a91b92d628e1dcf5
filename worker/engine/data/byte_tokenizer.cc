#include "base/file.h"
#include "base/utf8.h"
#include "worker/engine/data/tokenizer.h"

namespace octavo::engine {
namespace {

constexpr int32_t kEndOfDocument = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  void Encode(absl::string_view text, const EncodeOptions&,
              std::vector<int32_t>* ids) const override {
    ids->reserve(ids->size() + text.size());
    for (const char c : text) ids->push_back(static_cast<uint8_t>(c));
  }

  std::string Decode(const std::vector<int32_t>& ids) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (id >= 0 && id < kEndOfDocument) bytes.push_back(static_cast<char>(id));
    }
    return ReplaceMalformedUtf8(bytes);
  }

  int64_t vocabulary_size() const override { return kEndOfDocument + 1; }
  int32_t end_of_document() const override { return kEndOfDocument; }
  int32_t begin_of_document() const override { return -1; }
  std::string sha256() const override { return Sha256Of("byte tokenizer, end of document 256"); }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace octavo::engine
