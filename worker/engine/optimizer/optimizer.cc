#include "worker/engine/optimizer/optimizer.h"

#include "base/status.h"

namespace octavo::engine {

absl::Status Optimizer::Update(const Parameters& parameters, const StepRecord& step) const {
  // One pass over everything: the padding between parameters is zero and stays so.
  RETURN_IF_ERROR(
      backend_->Run(kernels::SumOfSquares{.x = parameters.gradient(),
                                          .count = parameters.layout().elements,
                                          .result = &step.state()->gradient_sum_of_squares}));
  RETURN_IF_ERROR(backend_->Run(
      kernels::DecideStep{.nonfinite = step.nonfinite().At(0, NonfiniteKind::kActivation),
                          .counters = step.nonfinite().count(),
                          .state = step.state(),
                          .clip_norm = spec_.clip_norm,
                          .beta1 = spec_.beta1,
                          .beta2 = spec_.beta2}));
  return Apply(parameters, step.state());
}

absl::Status Optimizer::Apply(const Parameters& parameters, const kernels::StepState* state) const {
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    RETURN_IF_ERROR(
        backend_->Run(kernels::AdamW{.master = parameters.master() + spec.offset,
                                     .gradient = parameters.gradient() + spec.offset,
                                     .exp_avg = parameters.exp_avg() + spec.offset,
                                     .exp_avg_sq = parameters.exp_avg_sq() + spec.offset,
                                     .count = spec.count(),
                                     .beta1 = spec_.beta1,
                                     .beta2 = spec_.beta2,
                                     .epsilon = spec_.epsilon,
                                     .weight_decay = spec.is_matrix() ? spec_.weight_decay : 0,
                                     .state = state}));
  }
  return absl::OkStatus();
}

}  // namespace octavo::engine
