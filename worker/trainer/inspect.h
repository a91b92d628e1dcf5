// Answers what a job would meet, without running it.
#pragma once

#include "octavo/v1/job.pb.h"

namespace octavo::trainer {

// Violations, warnings and plan of the spec on this machine; `spec` of the answer stays empty.
v1::ValidateJobResponse InspectJob(v1::JobSpec spec);

}  // namespace octavo::trainer
