#include "worker/engine/data/json_row.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/engine/data/utf8.h"

namespace octavo::engine {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestMessage = 160;
constexpr int kNumberOutOfRange = 406;  // nlohmann's number of that error

class RowHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit RowHandler(const std::string& text_field) : text_field_(text_field) {}

  bool null() override { return Value("null", true); }
  bool boolean(bool) override { return Value("a boolean", false); }
  bool number_integer(number_integer_t value) override { return Number(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(absl::StrCat(value)); }
  bool number_float(number_float_t, const string_t& spelling) override { return Number(spelling); }
  bool string(string_t& value) override {
    if (!AtTextField()) return Value("a string", false);
    row_.text = std::move(value);
    has_text_ = true;
    return true;
  }
  bool binary(binary_t&) override { return false; }  // no part of textual JSON

  bool start_object(std::size_t) override {
    if (AtTextField() && !WrongType("an object")) return false;
    open_.push_back({/*is_object=*/true, {}});
    return CheckDepth();
  }
  bool start_array(std::size_t) override {
    if (open_.empty()) return NotAnObject("an array");
    if (AtTextField() && !WrongType("an array")) return false;
    open_.push_back({/*is_object=*/false, {}});
    return CheckDepth();
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    at_text_field_ = open_.size() == 1 && name == text_field_;
    if (open_.back().keys.insert(name).second) return true;
    return Refuse("duplicate-key", absl::StrCat("the key \"", name, "\" is there twice"));
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    error_position = position;
    if (error.id == kNumberOutOfRange) {
      number_out_of_range = last_token;
      return false;
    }
    absl::string_view what = error.what();
    const size_t place = what.find(": ");
    if (place != what.npos) what.remove_prefix(place + 2);
    row_.column = static_cast<int64_t>(position);
    // The parser stands at the end of a string or number that must not be there; what is wrong is
    // where it starts.
    if (absl::StrContains(what, "unexpected string literal") ||
        absl::StrContains(what, "unexpected number literal")) {
      row_.column -= static_cast<int64_t>(last_token.size()) - 1;
    }
    return Refuse("json-syntax", absl::StrCat("not JSON: ", what.substr(0, kLongestMessage)));
  }

  JsonRow Finish() {
    if (row_.reason.empty() && !has_text_) {
      Refuse("missing-key", absl::StrCat("has no text at the key \"", text_field_,
                                         "\": set data.text_field to the key that holds it"));
    }
    return std::move(row_);
  }

  size_t error_position = 0;
  std::string number_out_of_range;

 private:
  struct Open {
    bool is_object;
    absl::flat_hash_set<std::string> keys;
  };

  bool AtTextField() const { return open_.size() == 1 && at_text_field_; }

  bool Refuse(absl::string_view reason, absl::string_view message) {
    row_.reason = std::string(reason);
    row_.message = std::string(message);
    return false;
  }
  bool NotAnObject(absl::string_view what) {
    return Refuse("not-an-object", absl::StrCat("is ", what, ", not an object"));
  }
  bool WrongType(absl::string_view what) {
    return Refuse("wrong-type",
                  absl::StrCat("has ", what, " at the key \"", text_field_, "\", not a text"));
  }
  bool Value(absl::string_view what, bool absent) {
    if (open_.empty()) return NotAnObject(what);
    return !AtTextField() || absent || WrongType(what);
  }
  bool Number(std::string spelling) {
    if (!AtTextField()) return Value("a number", false);
    row_.text = std::move(spelling);
    row_.converted = has_text_ = true;
    return true;
  }
  bool CheckDepth() {
    if (open_.size() <= kDeepestJson) return true;
    return Refuse("json-depth", absl::StrCat("is nested deeper than ", kDeepestJson, " levels"));
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string& text_field_;
  JsonRow row_;
  bool has_text_ = false;
  bool at_text_field_ = false;
  std::vector<Open> open_;
};

}  // namespace

JsonRow ParseJsonRow(absl::string_view row, const std::string& text_field) {
  if (const size_t invalid = FindInvalidUtf8(row); invalid != row.npos) {
    JsonRow bad;
    bad.reason = "encoding";
    bad.column = static_cast<int64_t>(invalid) + 1;
    bad.message = "is not UTF-8: convert the file";
    return bad;
  }
  std::string text(row);
  while (true) {
    RowHandler handler(text_field);
    Json::sax_parse(text, &handler);
    if (handler.number_out_of_range.empty()) return handler.Finish();
    // A number that no double holds is legal JSON, and of no interest: it becomes a string.
    const std::string& number = handler.number_out_of_range;
    text.replace(handler.error_position - number.size(), number.size(),
                 absl::StrCat("\"", number, "\""));
  }
}

}  // namespace octavo::engine
