#include "worker/engine/data/split_pattern.h"

#include <cstdint>

#include "base/utf8.h"
#include "worker/engine/data/unicode_class.h"

namespace octavo::engine {
namespace {

constexpr int32_t kLongS = 0x17F;  // folds to s, so (?i:'s) matches it

constexpr uint8_t kUpperPart = kUppercase | kTitlecase | kModifier | kOtherLetter | kMark;
constexpr uint8_t kLowerPart = kLowercase | kModifier | kOtherLetter | kMark;

bool IsNewline(int32_t c) { return c == '\r' || c == '\n'; }

struct Position {
  int32_t code_point = -1;
  uint8_t classes = 0;
  size_t end = 0;  // where the next character begins
};

Position At(absl::string_view text, size_t at) {
  const Utf8Character character = DecodeUtf8(text, at);
  return {character.code_point, ClassOf(character.code_point), at + character.length};
}

// End of the run of characters of `classes` from `at`.
size_t RunEnd(absl::string_view text, size_t at, uint8_t classes) {
  while (at < text.size()) {
    const Position c = At(text, at);
    if ((c.classes & classes) == 0) break;
    at = c.end;
  }
  return at;
}

// [^\s\p{L}\p{N}]*
size_t SymbolRunEnd(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Position c = At(text, at);
    if ((c.classes & (kSpace | kLetter | kNumber)) != 0) break;
    at = c.end;
  }
  return at;
}

// \s+(?!\S)|\s+ from a space: a run leaves its last character to the word that follows.
size_t SpaceRunEnd(absl::string_view text, size_t begin) {
  size_t at = begin;
  size_t last = begin;
  while (at < text.size()) {
    const Position c = At(text, at);
    if ((c.classes & kSpace) == 0) break;
    last = at;
    at = c.end;
  }
  return at == text.size() || last == begin ? at : last;
}

// \s*[\r\n]+ : up to the last line end of the run of spaces; `begin` when it has none.
size_t LineEndRunEnd(absl::string_view text, size_t begin) {
  size_t end = begin;
  for (size_t at = begin; at < text.size();) {
    const Position c = At(text, at);
    if ((c.classes & kSpace) == 0) break;
    at = c.end;
    if (IsNewline(c.code_point)) end = at;
  }
  return end;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// 's|'t|'re|'ve|'m|'ll|'d ; `begin` when there is none.
size_t ContractionEnd(absl::string_view text, size_t begin, bool ignore_case) {
  if (text[begin] != '\'' || begin + 1 >= text.size()) return begin;
  const auto letter = [&](size_t at) -> char {
    if (at >= text.size()) return '\0';
    return ignore_case ? Lower(text[at]) : text[at];
  };
  const char first = letter(begin + 1);
  const char second = letter(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
  if (first == 'l' && second == 'l') return begin + 3;
  if (ignore_case && At(text, begin + 1).code_point == kLongS) return At(text, begin + 1).end;
  return begin;
}

class Gpt2Splitter final : public Splitter {
 public:
  size_t PieceEnd(absl::string_view text, size_t begin) const override {
    if (const size_t end = ContractionEnd(text, begin, false); end > begin) return end;
    const size_t start = begin + (text[begin] == ' ' ? 1 : 0);
    if (const size_t end = RunEnd(text, start, kLetter); end > start) return end;
    if (const size_t end = RunEnd(text, start, kNumber); end > start) return end;
    if (const size_t end = SymbolRunEnd(text, start); end > start) return end;
    return SpaceRunEnd(text, begin);
  }
};

// The patterns of Qwen, Llama 3 and Mistral Nemo, which differ in how words and numbers are cut.
class WordSplitter final : public Splitter {
 public:
  struct Options {
    bool contractions = true;
    bool split_case = false;  // upper- and lower-case parts of a word apart
    int most_digits = 1;
    bool slash_after_symbols = false;
  };
  explicit WordSplitter(const Options& options) : options_(options) {}

  size_t PieceEnd(absl::string_view text, size_t begin) const override {
    if (options_.contractions) {
      if (const size_t end = ContractionEnd(text, begin, true); end > begin) return end;
    }
    if (const size_t end = WordEnd(text, begin); end > begin) return end;
    if (const size_t end = NumberEnd(text, begin); end > begin) return end;
    if (const size_t end = SymbolsEnd(text, begin); end > begin) return end;
    if (const size_t end = LineEndRunEnd(text, begin); end > begin) return end;
    return SpaceRunEnd(text, begin);
  }

 private:
  // [^\r\n\p{L}\p{N}]? and then the letters; the optional character is given back when no letters
  // follow it.
  size_t WordEnd(absl::string_view text, size_t begin) const {
    const Position first = At(text, begin);
    const bool prefix = !IsNewline(first.code_point) && (first.classes & (kLetter | kNumber)) == 0;
    if (!options_.split_case) {
      const size_t start = prefix ? first.end : begin;
      const size_t end = RunEnd(text, start, kLetter);
      return end > start ? end : begin;
    }
    for (const auto part : {&WordSplitter::LowerEndingPart, &WordSplitter::UpperStartingPart}) {
      if (prefix) {
        if (const size_t end = part(text, first.end); end > first.end) return end;
      }
      if (const size_t end = part(text, begin); end > begin) return end;
    }
    return begin;
  }

  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ : where nothing of the second class
  // follows the first run, the run is given back to its last character that is in both.
  static size_t LowerEndingPart(absl::string_view text, size_t begin) {
    size_t shared_end = begin;
    size_t at = begin;
    while (at < text.size()) {
      const Position c = At(text, at);
      if ((c.classes & kUpperPart) == 0) break;
      at = c.end;
      if ((c.classes & kLowerPart) != 0) shared_end = at;
    }
    const size_t end = RunEnd(text, at, kLowerPart);
    return end > at ? end : shared_end;
  }

  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
  static size_t UpperStartingPart(absl::string_view text, size_t begin) {
    const size_t upper_end = RunEnd(text, begin, kUpperPart);
    return upper_end == begin ? begin : RunEnd(text, upper_end, kLowerPart);
  }

  // \p{N}{1,most}
  size_t NumberEnd(absl::string_view text, size_t begin) const {
    size_t at = begin;
    for (int i = 0; i < options_.most_digits && at < text.size(); ++i) {
      const Position c = At(text, at);
      if ((c.classes & kNumber) == 0) break;
      at = c.end;
    }
    return at;
  }

  // ` ?[^\s\p{L}\p{N}]+[\r\n]*`, or [\r\n/]* at its end
  size_t SymbolsEnd(absl::string_view text, size_t begin) const {
    const size_t start = begin + (text[begin] == ' ' ? 1 : 0);
    size_t at = SymbolRunEnd(text, start);
    if (at == start) return begin;
    while (at < text.size() &&
           (IsNewline(text[at]) || (options_.slash_after_symbols && text[at] == '/'))) {
      ++at;
    }
    return at;
  }

  const Options options_;
};

class DigitSplitter final : public Splitter {
 public:
  explicit DigitSplitter(bool individual) : individual_(individual) {}

  size_t PieceEnd(absl::string_view text, size_t begin) const override {
    const Utf8Character first = DecodeUtf8(text, begin);
    const bool digits = IsDigitOfUnicode17(first.code_point);
    size_t at = begin + first.length;
    if (digits && individual_) return at;
    while (at < text.size()) {
      const Utf8Character c = DecodeUtf8(text, at);
      if (IsDigitOfUnicode17(c.code_point) != digits) break;
      at += c.length;
    }
    return at;
  }

 private:
  const bool individual_;
};

constexpr absl::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

absl::StatusOr<std::unique_ptr<Splitter>> MakeSplitter(absl::string_view pattern) {
  using Options = WordSplitter::Options;
  if (pattern == kGpt2Pattern) return std::make_unique<Gpt2Splitter>();
  if (pattern == kQwenPattern) return std::make_unique<WordSplitter>(Options{});
  if (pattern == kLlama3Pattern) {
    return std::make_unique<WordSplitter>(Options{.most_digits = 3});
  }
  if (pattern == kTekkenPattern) {
    return std::make_unique<WordSplitter>(
        Options{.contractions = false, .split_case = true, .slash_after_symbols = true});
  }
  return MakeRegexSplitter(pattern);
}

std::unique_ptr<Splitter> MakeDigitSplitter(bool individual) {
  return std::make_unique<DigitSplitter>(individual);
}

}  // namespace octavo::engine
