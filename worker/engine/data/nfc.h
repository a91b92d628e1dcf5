// Unicode normalisation form C.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace octavo::engine {

// Text that is no UTF-8 stays as it is: normalising would replace its bytes. At most 2^31 - 1
// bytes.
std::string NormalizeNfc(absl::string_view text);

}  // namespace octavo::engine
