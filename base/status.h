// Status macros and CHECK, which Debian's Abseil does not have. Names and meaning are upstream's,
// so that they can be swapped.
//
//   absl::Status for what the world can do wrong; CHECK for what we did wrong.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace octavo {

// Prints the condition, the message and where it stands to standard error, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

// Puts "context: " before the message and keeps the code. OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace octavo

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) ::octavo::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define RETURN_IF_ERROR(expression)                                       \
  do {                                                                    \
    if (absl::Status octavo_status = (expression); !octavo_status.ok()) { \
      return octavo_status;                                               \
    }                                                                     \
  } while (false)

#define OCTAVO_CONCAT_INNER(a, b) a##b
#define OCTAVO_CONCAT(a, b) OCTAVO_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(left, expression) \
  ASSIGN_OR_RETURN_INNER(OCTAVO_CONCAT(octavo_or_, __LINE__), left, expression)
#define ASSIGN_OR_RETURN_INNER(name, left, expression) \
  auto name = (expression);                            \
  if (!name.ok()) return std::move(name).status();     \
  left = *std::move(name)
