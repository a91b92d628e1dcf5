// Host and port, as flags and configuration files give them.
#pragma once

#include "absl/strings/string_view.h"

namespace octavo {

// "host:port" or "[::1]:port", port in [0, 65535].
bool IsAddress(absl::string_view text);

}  // namespace octavo
