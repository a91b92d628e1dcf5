#include "worker/engine/checkpoint/strict_json.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace octavo::engine {

absl::StatusOr<nlohmann::ordered_json> ParseStrictJson(absl::string_view text,
                                                       const std::string& path) {
  using nlohmann::ordered_json;
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  const auto watch = [&](int, ordered_json::parse_event_t event, ordered_json& value) {
    if (event == ordered_json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == ordered_json::parse_event_t::object_end) open_objects.pop_back();
    if (event == ordered_json::parse_event_t::key) {
      const auto key = value.get<std::string>();
      if (!open_objects.back().insert(key).second && duplicate.empty()) duplicate = key;
    }
    return true;
  };
  ordered_json parsed = ordered_json::parse(text.begin(), text.end(), watch, false);
  if (parsed.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not valid JSON"));
  }
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  }
  if (!duplicate.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": key \"", duplicate, "\" occurs twice"));
  }
  return parsed;
}

}  // namespace octavo::engine
