#include "base/strict_json.h"

#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace octavo {
namespace {

// Follows the parser through the text and keeps the first thing that is wrong.
class Watcher {
 public:
  explicit Watcher(size_t most_keys) : most_keys_(most_keys) {}

  // False leaves out what begins or ends with this event: nothing deep or large is ever built.
  template <typename Json>
  bool See(int depth, typename Json::parse_event_t event, Json& value) {
    using Event = typename Json::parse_event_t;
    if (!error_.empty()) return false;
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) SeeKey(value.template get_ref<const std::string&>());
    const bool deeper = event == Event::object_start || event == Event::array_start;
    if (deeper && depth >= kMostJsonNesting) {
      error_ = absl::StrCat("objects and arrays nest deeper than the limit of ", kMostJsonNesting);
    }
    return error_.empty();
  }
  const std::string& error() const { return error_; }

 private:
  void SeeKey(const std::string& key) {
    if (!keys_.back().insert(key).second) error_ = absl::StrCat("key \"", key, "\" occurs twice");
    if (keys_.back().size() > most_keys_) {
      error_ = absl::StrCat("an object has more than the limit of ", most_keys_, " keys");
    }
  }

  const size_t most_keys_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string error_;
};

template <typename Json>
absl::StatusOr<Json> Parse(absl::string_view text, const std::string& path, size_t most_keys) {
  // The parser takes a zero byte for the end of the text, which no JSON may hold anywhere.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not valid JSON at its byte ", zero + 1, ", a zero byte"));
  }
  Watcher watcher(most_keys);
  Json parsed;
  try {
    parsed = Json::parse(
        text.begin(), text.end(),
        [&](int depth, typename Json::parse_event_t event, Json& value) {
          return watcher.See(depth, event, value);
        },
        /*allow_exceptions=*/true);
  } catch (const nlohmann::json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not valid JSON at its byte ", error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a number is beyond the range of a double"));
  }
  if (!watcher.error().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", watcher.error()));
  }
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  }
  return parsed;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const std::string& path) {
  return Parse<nlohmann::json>(text, path, std::numeric_limits<size_t>::max());
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text,
                                                        const std::string& path) {
  return Parse<nlohmann::ordered_json>(text, path, kMostOrderedJsonKeys);
}

}  // namespace octavo
