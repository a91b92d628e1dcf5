// AdamW with decoupled decay (arXiv:1711.05101) on FP32 state:
//   g = gradient * gradient_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   master = master * (1 - lr * decay) - lr * (m / correction1) / (sqrt(v / correction2) + epsilon)
// with gradient_scale, lr and correction_i from the step's state.
#pragma once

#include <cstdint>

#include "kernels/ops/step.h"

namespace octavo::kernels {

struct AdamW {
  static constexpr char kName[] = "AdamW";
  float* master;
  const float* gradient;
  float* exp_avg;
  float* exp_avg_sq;
  int64_t count;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;     // 0 for norms and biases
  const StepState* state;  // [1]; nothing is changed unless its `apply` is 1
};

}  // namespace octavo::kernels
