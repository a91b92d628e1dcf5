#include "worker/engine/optimizer/schedule.h"

#include <cmath>

namespace octavo::engine {
namespace {

// From `peak` at 0 to exactly `minimum` at 1.
double CosineBetween(double peak, double minimum, double progress) {
  if (progress >= 1) return minimum;
  return minimum + (peak - minimum) * 0.5 * (std::cos(M_PI * progress) + 1);
}

}  // namespace

double LearningRate(const RunSpec& spec, int64_t step) {
  const double peak = spec.optimizer.learning_rate;
  const double minimum = spec.optimizer.min_learning_rate;
  const ScheduleSpec& schedule = spec.schedule;
  if (schedule.warmup_steps > 0 && step <= schedule.warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  int64_t decay_start = spec.steps;
  switch (schedule.kind) {
    case ScheduleSpec::Kind::kConstant:
      return peak;
    case ScheduleSpec::Kind::kCosine:
      decay_start = schedule.warmup_steps;
      break;
    case ScheduleSpec::Kind::kWsd:
      decay_start = spec.steps - schedule.decay_steps;
      break;
  }
  if (step > spec.steps) return minimum;
  if (step <= decay_start) return peak;
  return CosineBetween(
      peak, minimum,
      static_cast<double>(step - decay_start) / static_cast<double>(spec.steps - decay_start));
}

}  // namespace octavo::engine
