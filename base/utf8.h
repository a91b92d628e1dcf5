// Well-formed UTF-8 (Unicode 15, table 3-7).
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace octavo {

// Bytes of the well-formed sequence at the start of `text`; 0 if there is none, as at a NUL.
size_t Utf8SequenceLength(absl::string_view text);

// Where the first byte lies that is not part of one; npos: nowhere.
size_t FindMalformedUtf8(absl::string_view text);

}  // namespace octavo
