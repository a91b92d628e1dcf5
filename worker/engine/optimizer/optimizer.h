// Global gradient norm, clipping and AdamW over Parameters.
#pragma once

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "worker/engine/model/step_record.h"
#include "worker/engine/parameters.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

class Optimizer {
 public:
  Optimizer(const OptimizerSpec& spec, kernels::Backend* backend)
      : spec_(spec), backend_(backend) {}

  // Takes the L2 norm over all gradients, in float64, lets the step decide whether it is applied
  // and, if it is, makes one AdamW update with clipping; norms and biases are not decayed. Bias
  // correction counts applied updates, so a skipped step leaves no trace. Waits for nothing.
  absl::Status Update(const Parameters& parameters, const StepRecord& step) const;

 private:
  absl::Status Apply(const Parameters& parameters, const kernels::StepState* state) const;

  OptimizerSpec spec_;
  kernels::Backend* backend_;
};

}  // namespace octavo::engine
