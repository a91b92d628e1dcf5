// Global gradient norm, clipping and AdamW over Parameters.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/parameters.h"
#include "worker/engine/plan.h"

namespace octavo::engine {

// min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it; 1 with clip_norm 0.
double ClipCoefficient(double norm, double clip_norm);

class Optimizer {
 public:
  static absl::StatusOr<Optimizer> Create(const OptimizerPlan& plan, kernels::Backend* backend);

  // L2 norm over all gradients, summed in float64. Not finite when one of them is not.
  absl::StatusOr<double> GradientNorm(const Parameters& parameters);

  // One AdamW update with clipping; norms and biases are not decayed. Bias correction counts
  // applied updates, so a skipped step leaves no trace.
  absl::Status Apply(const Parameters& parameters, double gradient_norm, double learning_rate);

  int64_t applied_updates() const { return applied_updates_; }
  void set_applied_updates(int64_t updates) { applied_updates_ = updates; }

 private:
  Optimizer(const OptimizerPlan& plan, kernels::Backend* backend)
      : plan_(plan), backend_(backend) {}
  OptimizerPlan plan_;
  kernels::Backend* backend_;
  kernels::Buffer<double> sum_of_squares_;  // [1]
  int64_t applied_updates_ = 0;
};

}  // namespace octavo::engine
