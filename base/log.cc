#include "base/log.h"

#include <unistd.h>

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace octavo {
namespace {

std::atomic<LogLevel> minimum_level{LogLevel::kInfo};
constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

}  // namespace

void SetLogLevel(LogLevel level) { minimum_level = level; }

void LogLine(LogLevel level, absl::string_view message) {
  if (level < minimum_level) return;
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                   kNames[static_cast<int>(level)], " ", message, "\n");
  // A failed write to standard error has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace octavo
