// Formula: kernels/ops/adamw.h. In float64 between the loads and the stores, so each state is the
// exact result for the stored inputs, rounded once; the memory's speed is the limit all the same.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/operations.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The compiler's own vectors, in the instructions of each target. No product is fused with an
// addition and every operation is rounded as IEEE 754 says: all targets give the same bits.
void AdamWChunk(const AdamW& op, int64_t start, int64_t end) {
  float* __restrict const master = op.master;
  float* __restrict const exp_avg = op.exp_avg;
  float* __restrict const exp_avg_sq = op.exp_avg_sq;
  const float* __restrict const gradient = op.gradient;
  const double scale = op.state->gradient_scale;
  const double beta1 = op.beta1;
  const double beta2 = op.beta2;
  const double epsilon = op.epsilon;
  const double keep = 1.0 - op.state->learning_rate * op.weight_decay;
  const double step = op.state->learning_rate / op.state->correction1;
  const double inverse_correction2 = 1.0 / op.state->correction2;
#pragma omp simd
  for (int64_t i = start; i < end; ++i) {
    const double g = static_cast<double>(gradient[i]) * scale;
    const double m = beta1 * static_cast<double>(exp_avg[i]) + (1.0 - beta1) * g;
    const double v = beta2 * static_cast<double>(exp_avg_sq[i]) + (1.0 - beta2) * g * g;
    const double x = static_cast<double>(master[i]) * keep -
                     step * m / (std::sqrt(v * inverse_correction2) + epsilon);
    exp_avg[i] = static_cast<float>(m);
    exp_avg_sq[i] = static_cast<float>(v);
    master[i] = static_cast<float>(x);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(AdamWChunk);

constexpr int64_t kChunk = 4096;

}  // namespace

absl::Status RunOperation(const AdamW& operation) {
  if (operation.state->apply == 0) return absl::OkStatus();
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < operation.count; start += kChunk) {
    HWY_DYNAMIC_DISPATCH(AdamWChunk)
    (operation, start, std::min(start + kChunk, operation.count));
  }
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
