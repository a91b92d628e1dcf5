// Formulas: kernels/ops/step.h.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/operations.h"

namespace octavo::kernels::cpu {
namespace {

double ClipCoefficient(double norm, double clip_norm) {
  if (clip_norm == 0) return 1;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

}  // namespace

absl::Status RunOperation(const AddLosses& operation) {
  LossTotal batch = {.sum = 0, .tokens = 0};
  for (int64_t t = 0; t < operation.tokens; ++t) {
    batch.sum += static_cast<double>(operation.loss[t]);
    batch.tokens += operation.targets[t] >= 0 ? 1 : 0;
  }
  operation.total->sum += batch.sum;
  operation.total->tokens += batch.tokens;
  return absl::OkStatus();
}

absl::Status RunOperation(const DecideStep& operation) {
  StepState& state = *operation.state;
  const uint64_t* const counters = operation.nonfinite;
  state.gradient_norm = std::sqrt(state.gradient_sum_of_squares);
  const bool counted = std::any_of(counters, counters + operation.counters,
                                   [](uint64_t count) { return count > 0; });
  const bool apply = state.loss.tokens > 0 && std::isfinite(state.loss.sum) &&
                     std::isfinite(state.gradient_norm) && !counted;
  state.apply = apply ? 1 : 0;
  if (!apply) return absl::OkStatus();
  ++state.applied_updates;
  const auto updates = static_cast<double>(state.applied_updates);
  state.gradient_scale = ClipCoefficient(state.gradient_norm, operation.clip_norm);
  state.correction1 = 1 - std::pow(operation.beta1, updates);
  state.correction2 = 1 - std::pow(operation.beta2, updates);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
