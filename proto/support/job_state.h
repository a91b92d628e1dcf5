// What the states of a job mean.
#pragma once

#include "octavo/v1/job.pb.h"

namespace octavo {

// The job has ended: neither its state nor its attempts change any more.
inline bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace octavo
