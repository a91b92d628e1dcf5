#include "worker/engine/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace octavo::engine {

double ClipCoefficient(double norm, double clip_norm) {
  if (clip_norm == 0) return 1;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

absl::StatusOr<Optimizer> Optimizer::Create(const OptimizerPlan& plan, kernels::Backend* backend) {
  Optimizer optimizer(plan, backend);
  ASSIGN_OR_RETURN(optimizer.sum_of_squares_, kernels::Buffer<double>::Create(backend, 1));
  return optimizer;
}

absl::StatusOr<double> Optimizer::GradientNorm(const Parameters& parameters) {
  RETURN_IF_ERROR(backend_->Run(
      kernels::FillZero{.memory = sum_of_squares_.data(), .bytes = sum_of_squares_.bytes()}));
  // One pass over everything: the padding between parameters is zero and stays so.
  RETURN_IF_ERROR(backend_->Run(kernels::SumOfSquares{.x = parameters.gradient(),
                                                      .count = parameters.layout().elements,
                                                      .result = sum_of_squares_.data()}));
  double sum = 0;
  RETURN_IF_ERROR(backend_->CopyOut(&sum, sum_of_squares_.data(), sizeof(sum)));
  return std::sqrt(sum);
}

absl::Status Optimizer::Apply(const Parameters& parameters, double gradient_norm,
                              double learning_rate) {
  ++applied_updates_;
  const auto updates = static_cast<double>(applied_updates_);
  kernels::AdamW update{};
  update.gradient_scale = ClipCoefficient(gradient_norm, plan_.clip_norm);
  update.learning_rate = learning_rate;
  update.beta1 = plan_.beta1;
  update.beta2 = plan_.beta2;
  update.epsilon = plan_.epsilon;
  update.correction1 = 1 - std::pow(plan_.beta1, updates);
  update.correction2 = 1 - std::pow(plan_.beta2, updates);
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    update.master = parameters.master() + spec.offset;
    update.gradient = parameters.gradient() + spec.offset;
    update.exp_avg = parameters.exp_avg() + spec.offset;
    update.exp_avg_sq = parameters.exp_avg_sq() + spec.offset;
    update.count = spec.count();
    update.weight_decay = spec.is_matrix() ? plan_.weight_decay : 0;
    RETURN_IF_ERROR(backend_->Run(update));
  }
  return absl::OkStatus();
}

}  // namespace octavo::engine
