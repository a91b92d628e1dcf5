// Opaque page tokens: a position, bound to the filter it was made for.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::rpc {

std::string MakePageToken(absl::string_view position, absl::string_view filter);

// The position; empty for an empty token. INVALID_ARGUMENT for a token of another filter and for
// one that we did not make.
absl::StatusOr<std::string> ReadPageToken(const std::string& token, absl::string_view filter);

}  // namespace octavo::rpc
