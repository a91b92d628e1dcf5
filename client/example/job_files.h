// The job files of an example: one job in two recipes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/example/task.h"
#include "octavo/v1/spec.pb.h"

namespace octavo::client {

// A job on what WriteTask wrote into `folder`, an absolute path. `recipe`: "bf16" or
// "fp8"; nothing but it and the name differs.
v1::JobSpec TaskJob(const Task& task, const std::string& folder, const std::string& recipe);

// Writes bf16.yaml and fp8.yaml into `folder`.
absl::Status WriteTaskJobs(const Task& task, const std::string& folder);

}  // namespace octavo::client
