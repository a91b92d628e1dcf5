// One line per message on standard error: time, level, message. Thread-safe; a line is written with
// one write().
//
//   LogInfo("octavod listens on ", address);
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace octavo {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below the level are dropped. Starts at kInfo.
void SetLogLevel(LogLevel level);
void LogLine(LogLevel level, absl::string_view message);

template <typename... Parts>
void LogDebug(const Parts&... parts) {
  LogLine(LogLevel::kDebug, absl::StrCat(parts...));
}
template <typename... Parts>
void LogInfo(const Parts&... parts) {
  LogLine(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  LogLine(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  LogLine(LogLevel::kError, absl::StrCat(parts...));
}

}  // namespace octavo
