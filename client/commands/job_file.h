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
};
// INVALID_ARGUMENT when the file cannot be read.
absl::StatusOr<LoadedJob> LoadJob(const JobFile& file);

// One aligned line per violation, or a JSON document of v1.Violations; to standard error and
// standard output.
void PrintViolations(const Context& context, const std::string& path,
                     const google::protobuf::RepeatedPtrField<v1::Violation>& violations);
void PrintWarnings(const Context& context,
                   const google::protobuf::RepeatedPtrField<std::string>& warnings);

}  // namespace octavo::client
