// A training step that needs no host: its operations add up in the backend's memory what decides
// whether the step is applied, one operation decides, and AdamW obeys. The host reads the state
// once, when the step is over.
#pragma once

#include <cstdint>

namespace octavo::kernels {

struct LossTotal {
  double sum;      // nats over target tokens
  int64_t tokens;  // target tokens
};

struct StepState {
  // Of the run.
  int64_t applied_updates;  // AdamW's t
  // Of the step, written before it.
  double learning_rate;
  // Zero before the step, and added to by its passes.
  LossTotal loss;        // over all micro-batches
  LossTotal first_loss;  // of the first one alone
  double gradient_sum_of_squares;
  // Written by DecideStep.
  int64_t apply;          // 1: the update happens; 0: it does not
  double gradient_norm;   // before clipping
  double gradient_scale;  // of clipping, at most 1
  double correction1;     // 1 - beta1^t of the update at hand
  double correction2;
};

// total.sum += sum_t loss[t], in float64 and in the order of t, added up apart first;
// total.tokens += the number of targets that are not negative.
struct AddLosses {
  static constexpr char kName[] = "AddLosses";
  const float* loss;       // [tokens]; 0 where the target is negative
  const int32_t* targets;  // [tokens]
  int64_t tokens;
  LossTotal* total;  // [1]
};

//   norm = sqrt(gradient_sum_of_squares)
//   apply = loss.tokens > 0, loss.sum and norm are finite, and every counter is 0
// and, where it applies:
//   t = applied_updates + 1, which becomes applied_updates
//   gradient_scale = min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it; 1
//   where clip_norm is 0;  correction_i = 1 - beta_i^t
struct DecideStep {
  static constexpr char kName[] = "DecideStep";
  const uint64_t* nonfinite;  // [counters], of values that were not finite
  int64_t counters;
  StepState* state;  // [1]
  double clip_norm;
  double beta1;
  double beta2;
};

}  // namespace octavo::kernels
