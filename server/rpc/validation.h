// ValidateJob: what the coordinator can say about a spec, and what a worker says that opens its
// inputs.
#pragma once

#include "base/reply.h"
#include "octavo/v1/job.pb.h"
#include "server/rpc/shell.h"

namespace octavo::rpc {

// Answers within the inspection timeout or at `deadline`, whichever comes first.
void Validate(Shell& shell, const v1::JobSpec& spec, absl::Duration deadline,
              Reply<v1::ValidateJobResponse> reply);

}  // namespace octavo::rpc
