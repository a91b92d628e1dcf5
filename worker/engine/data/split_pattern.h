// Cuts text into pieces as a pre-tokenizer's regular expression says. Every byte lands in a piece.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

class Splitter {
 public:
  virtual ~Splitter() = default;
  // End of the piece that begins at text[begin]; begin < text.size(), the answer is > begin.
  virtual size_t PieceEnd(absl::string_view text, size_t begin) const = 0;
};

// GPT-2's pattern, which ByteLevel with use_regex applies.
inline constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Behaviour "Isolated": matches and the text between them are pieces. Known patterns are scanned by
// hand in linear time, others are run in Oniguruma. INVALID_ARGUMENT when it does not compile.
absl::StatusOr<std::unique_ptr<Splitter>> MakeSplitter(absl::string_view pattern);

// Any pattern in Oniguruma; what the scanners must equal.
absl::StatusOr<std::unique_ptr<Splitter>> MakeRegexSplitter(absl::string_view pattern);

// The pre-tokenizer `Digits`: numbers apart from the rest, each alone when `individual`.
std::unique_ptr<Splitter> MakeDigitSplitter(bool individual);

}  // namespace octavo::engine
