// JSON as configuration of ours and of model folders: one object, no key twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

// Keeps the order of keys. INVALID_ARGUMENT names `path` and the byte or the key.
absl::StatusOr<nlohmann::ordered_json> ParseStrictJson(absl::string_view text,
                                                       const std::string& path);

}  // namespace octavo::engine
