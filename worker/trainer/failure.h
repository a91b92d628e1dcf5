// What an error means for the job: whether a restart could help is decided by its cause.
#pragma once

#include "absl/status/status.h"
#include "octavo/v1/job.pb.h"

namespace octavo::trainer {

// What the trainer was doing: a missing file is bad input while preparing, lost storage later.
enum class Phase { kPrepare, kTrain, kStore };

v1::FailureCause CauseOf(const absl::Status& status, Phase phase);

// The status as one line. CHECKs that it is an error.
v1::Failure MakeFailure(const absl::Status& status, Phase phase);

}  // namespace octavo::trainer
