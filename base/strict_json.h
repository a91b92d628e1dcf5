// JSON that somebody else wrote: configuration of model folders, checkpoints, reports.
//
// A parsed tree keeps one of two equal keys without a word, and whatever walks a tree recurses as
// deep as it nests. So both are refused here, once for everybody.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo {

inline constexpr int kMostJsonNesting = 64;  // objects and arrays within each other

// The JSON object `text`. INVALID_ARGUMENT names `path` and the byte that is not JSON, the key that
// occurs twice in one object, or the limit of nesting.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const std::string& path);

// The same with the keys in the order of the text. Such a tree finds a key by trying all of them,
// so an object of more than kMostOrderedJsonKeys keys is refused too.
inline constexpr int kMostOrderedJsonKeys = 4096;
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text,
                                                        const std::string& path);

}  // namespace octavo
