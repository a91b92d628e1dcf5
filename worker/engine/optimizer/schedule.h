// Learning rate as a function of the optimizer step alone. P peak, M minimum, W warm-up steps, S
// steps in all, D decay steps of "wsd"; steps s count from 1.
//
//   s <= W             P * s / W
//   "constant"         P
//   "cosine"           M + (P - M) * (1 + cos(pi * (s - W) / (S - W))) / 2
//   "wsd"              P while s <= S - D, then M + (P - M) * (1 + cos(pi * (s - (S - D)) / D)) / 2
//
// So step S has exactly M, unless the schedule is constant, D is 0 or the warm-up fills the run.
// These are the formulas of Megatron-LM's scheduler (megatron/core/optimizer_param_scheduler.py),
// which evaluates them for the step after the current one where its log is concerned; step s here
// uses what that log shows at s.
#pragma once

#include <cstdint>

#include "worker/engine/run_spec.h"

namespace octavo::engine {

double LearningRate(const RunSpec& spec, int64_t step);

}  // namespace octavo::engine
