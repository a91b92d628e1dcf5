// A job spec, as users write it, to the RunSpec that the engine takes.
#pragma once

#include "absl/status/statusor.h"
#include "octavo/v1/spec.pb.h"
#include "worker/engine/run_spec.h"

namespace octavo::trainer {

// `spec` has its defaults filled in. INVALID_ARGUMENT lists every violation of CheckJobSpec: a spec
// may reach a trainer that is older than the coordinator which accepted it.
absl::StatusOr<engine::RunSpec> MakeRunSpec(const v1::JobSpec& spec);

}  // namespace octavo::trainer
