// What the program's exit status says. The one table of it: --help and README.md repeat its rows.
#pragma once

#include <array>

#include "absl/strings/string_view.h"

namespace octavo::client {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kUnreachable = 3,
  kNotFound = 4,
  kRefused = 5,
  kInternal = 6,
  kInterrupted = 130,  // 128 + SIGINT, as a shell counts
};

struct ExitCodeRow {
  ExitCode code;
  absl::string_view meaning;
};

inline constexpr std::array<ExitCodeRow, 8> kExitCodes = {{
    {ExitCode::kOk, "done; a watched job succeeded"},
    {ExitCode::kFailed, "the job file has violations, or a watched job failed or was cancelled"},
    {ExitCode::kUsage, "wrong arguments, or a local file that cannot be read or written"},
    {ExitCode::kUnreachable, "the coordinator does not answer"},
    {ExitCode::kNotFound, "no such job"},
    {ExitCode::kRefused, "the coordinator refuses: a limit is reached or the job's state forbids"},
    {ExitCode::kInternal, "anything else, a defect of the coordinator included"},
    {ExitCode::kInterrupted, "interrupted by Ctrl-C; the job runs on"},
}};

}  // namespace octavo::client
