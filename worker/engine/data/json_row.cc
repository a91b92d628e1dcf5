#include "worker/engine/data/json_row.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace octavo::engine {
namespace {

// Reads a row from its first byte to its last, once. Each method expects what its name says at
// at_, steps behind it and answers whether the row is still good.
class RowParser {
 public:
  RowParser(absl::string_view row, const std::string& text_field)
      : row_(row), text_field_(text_field) {}

  JsonRow Parse() {
    if (ReadAll() && !has_text_) {
      Refuse("missing-key", 0,
             absl::StrCat("has no text at the key \"", text_field_,
                          "\": set data.text_field to the key that holds it"));
    }
    result_.scanned_bytes = static_cast<int64_t>(at_);
    return std::move(result_);
  }

 private:
  struct Open {
    bool is_object;
    absl::flat_hash_set<std::string> keys;
  };

  bool ReadAll() {
    do {
      if (!ReadKeyAndColon() || !ReadValueOrOpening() || !ReadBehindValue()) return false;
    } while (!open_.empty());
    return true;
  }

  // A key where one must stand: in an object.
  bool ReadKeyAndColon() {
    if (open_.empty() || !open_.back().is_object) return true;
    SkipSpace();
    if (Next() != '"') return Malformed("a key in quotes is expected");
    std::string name;
    if (!ReadString(&name)) return false;
    SkipSpace();
    if (Next() != ':') return Malformed("a colon is expected behind the key");
    ++at_;
    at_text_field_ = open_.size() == 1 && name == text_field_;
    if (open_.back().keys.insert(name).second) return true;
    return Refuse("duplicate-key", 0, absl::StrCat("the key \"", name, "\" is there twice"));
  }

  // A whole value, or objects and lists opened down to where a key or a value must follow.
  bool ReadValueOrOpening() {
    while (true) {
      SkipSpace();
      const char first = Next();
      if (first != '{' && first != '[') return ReadScalar(first);
      if (!OpenContainer(first == '{')) return false;
      SkipSpace();
      if (Next() == (first == '{' ? '}' : ']')) return true;  // ReadBehindValue closes it
      if (first == '{') {
        if (!ReadKeyAndColon()) return false;
      }
    }
  }

  bool OpenContainer(bool is_object) {
    if (open_.empty() && !is_object) return NotAnObject("an array");
    if (AtTextField()) return WrongType(is_object ? "an object" : "an array");
    if (open_.size() == kDeepestJson) {
      return Refuse("json-depth", 0,
                    absl::StrCat("is nested deeper than ", kDeepestJson, " levels"));
    }
    open_.push_back({is_object, {}});
    ++at_;
    return true;
  }

  // What closes objects and lists, then a comma or the end of the row.
  bool ReadBehindValue() {
    while (!open_.empty()) {
      SkipSpace();
      const bool is_object = open_.back().is_object;
      const char next = Next();
      if (next == ',') {
        ++at_;
        return true;
      }
      if (next != (is_object ? '}' : ']')) {
        return Malformed(is_object ? "a comma or } is expected" : "a comma or ] is expected");
      }
      ++at_;
      open_.pop_back();
    }
    SkipSpace();
    return at_ == row_.size() || Malformed("the row goes on behind its object");
  }

  bool ReadScalar(char first) {
    if (first == '"') {
      std::string value;
      if (!ReadString(&value)) return false;
      if (!AtTextField()) return NoText("a string");
      result_.text = std::move(value);
      has_text_ = true;
      return true;
    }
    if (ConsumeWord("null")) return open_.empty() ? NotAnObject("null") : true;
    if (ConsumeWord("true") || ConsumeWord("false")) return NoText("a boolean");
    for (const absl::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (absl::StartsWith(row_.substr(at_), word)) {
        return Malformed(absl::StrCat(word, " is no value of JSON; write null"));
      }
    }
    if (first == '-' || absl::ascii_isdigit(static_cast<unsigned char>(first))) return ReadNumber();
    return Malformed(at_ == row_.size() ? "the row ends where a value is expected"
                                        : "a value is expected");
  }

  // -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
  bool ReadNumber() {
    const size_t begin = at_;
    if (Next() == '-') ++at_;
    if (Next() == '0') {
      ++at_;
    } else if (!ReadDigits()) {
      return false;
    }
    if (Next() == '.') {
      ++at_;
      if (!ReadDigits()) return false;
    }
    if (Next() == 'e' || Next() == 'E') {
      ++at_;
      if (Next() == '+' || Next() == '-') ++at_;
      if (!ReadDigits()) return false;
    }
    if (!AtTextField()) return NoText("a number");
    result_.text = std::string(row_.substr(begin, at_ - begin));
    result_.converted = has_text_ = true;
    return true;
  }

  bool ReadDigits() {
    const size_t begin = at_;
    while (absl::ascii_isdigit(static_cast<unsigned char>(Next()))) ++at_;
    return at_ > begin || Malformed("a digit is expected");
  }

  bool ReadString(std::string* value) {
    ++at_;  // the opening quote
    while (true) {
      const size_t begin = at_;
      while (at_ < row_.size() && row_[at_] != '"' && row_[at_] != '\\' &&
             static_cast<unsigned char>(row_[at_]) >= 0x20) {
        ++at_;
      }
      absl::StrAppend(value, row_.substr(begin, at_ - begin));
      if (at_ == row_.size()) return Malformed("the row ends inside a string");
      if (row_[at_] == '"') {
        ++at_;
        return true;
      }
      if (row_[at_] != '\\') return Malformed("a control character in a string must be escaped");
      if (!ReadEscape(value)) return false;
    }
  }

  bool ReadEscape(std::string* value) {
    static constexpr absl::string_view kNames = "\"\\/bfnrt";
    static constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;  // the backslash
    if (Next() == 'u') return ReadCodePoint(value);
    const size_t which = at_ == row_.size() ? kNames.npos : kNames.find(row_[at_]);
    if (which == kNames.npos) return Malformed("no escape of JSON follows the backslash");
    ++at_;
    value->push_back(kMeanings[which]);
    return true;
  }

  // Two escapes stand for a character above U+FFFF; half of such a pair is no text.
  bool ReadCodePoint(std::string* value) {
    const auto is_half = [](int32_t unit, int32_t first) {
      return unit >= first && unit < first + 0x400;
    };
    const size_t begin = at_ - 1;
    int32_t unit = 0;
    if (!ReadFourHexDigits(&unit)) return false;
    if (is_half(unit, 0xD800) && ConsumeWord("\\")) {
      int32_t low = 0;
      if (Next() == 'u' && !ReadFourHexDigits(&low)) return false;
      if (is_half(low, 0xDC00)) {
        AppendUtf8(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), value);
        return true;
      }
    }
    if (is_half(unit, 0xD800) || is_half(unit, 0xDC00)) {
      return Refuse("json-syntax", begin + 1, "not JSON: half of a surrogate pair stands alone");
    }
    AppendUtf8(unit, value);
    return true;
  }

  bool ReadFourHexDigits(int32_t* unit) {
    ++at_;  // the u
    for (int i = 0; i < 4; ++i, ++at_) {
      const char digit = absl::ascii_tolower(static_cast<unsigned char>(Next()));
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) {
        return Malformed("four hexadecimal digits are expected");
      }
      *unit = *unit * 16 + (digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return true;
  }

  // '\0', which stands nowhere outside a string, at the end of the row.
  char Next() const { return at_ < row_.size() ? row_[at_] : '\0'; }
  void SkipSpace() {
    while (Next() == ' ' || Next() == '\t' || Next() == '\n' || Next() == '\r') ++at_;
  }
  bool ConsumeWord(absl::string_view word) {
    if (!absl::StartsWith(row_.substr(at_), word)) return false;
    at_ += word.size();
    return true;
  }

  bool AtTextField() const { return open_.size() == 1 && at_text_field_; }

  bool Refuse(absl::string_view reason, size_t column, absl::string_view message) {
    result_.reason = std::string(reason);
    result_.column = static_cast<int64_t>(column);
    result_.message = std::string(message);
    return false;
  }
  bool Malformed(absl::string_view what) {
    return Refuse("json-syntax", at_ + 1, absl::StrCat("not JSON: ", what));
  }
  bool NotAnObject(absl::string_view what) {
    return Refuse("not-an-object", 0, absl::StrCat("is ", what, ", not an object"));
  }
  bool WrongType(absl::string_view what) {
    return Refuse("wrong-type", 0,
                  absl::StrCat("has ", what, " at the key \"", text_field_, "\", not a text"));
  }
  // A value that is no text: fine anywhere but at the text's key and instead of the object.
  bool NoText(absl::string_view what) {
    if (open_.empty()) return NotAnObject(what);
    return !AtTextField() || WrongType(what);
  }

  const absl::string_view row_;
  const std::string& text_field_;
  size_t at_ = 0;  // never steps back
  JsonRow result_;
  bool has_text_ = false;
  bool at_text_field_ = false;  // the value that follows belongs to text_field_
  std::vector<Open> open_;      // from the row's object inwards
};

}  // namespace

JsonRow ParseJsonRow(absl::string_view row, const std::string& text_field) {
  if (const size_t invalid = FindMalformedUtf8(row); invalid != row.npos) {
    JsonRow bad;
    bad.reason = "encoding";
    bad.column = static_cast<int64_t>(invalid) + 1;
    bad.message = "is not UTF-8: convert the file";
    return bad;
  }
  return RowParser(row, text_field).Parse();
}

}  // namespace octavo::engine
