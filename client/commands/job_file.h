// Job files: reading them and showing what is wrong with them.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/commands.h"
#include "octavo/v1/job.pb.h"

namespace octavo::client {

struct LoadedJob {
  v1::JobSpec spec;                       // as written: without defaults
  std::vector<v1::Violation> violations;  // all that can be found without a coordinator
  bool readable = true;                   // else the violations are about the file as a whole
};
// INVALID_ARGUMENT when the file cannot be read.
absl::StatusOr<LoadedJob> LoadJob(const JobFile& file);

// What coordinator and worker find, after what was found here. Without a coordinator, the
// violations found here with a warning, or its error when there are none.
absl::StatusOr<v1::ValidateJobResponse> CheckJob(Context& context, const LoadedJob& job);

// One aligned line per violation, or a JSON document of v1.Violations; to standard error and
// standard output.
void PrintViolations(const Context& context, const std::string& path,
                     const google::protobuf::RepeatedPtrField<v1::Violation>& violations);
void PrintWarnings(const Context& context,
                   const google::protobuf::RepeatedPtrField<std::string>& warnings);

}  // namespace octavo::client
