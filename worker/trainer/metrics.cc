#include "worker/trainer/metrics.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/metric_table.h"

namespace octavo::trainer {
namespace {

double TokensPerSecond(const engine::StepReport& report) {
  return report.seconds > 0 ? static_cast<double>(report.step_tokens) / report.seconds : 0;
}

}  // namespace

std::vector<v1::MetricPoint> MakeMetricPoints(const engine::StepReport& report, absl::Time now) {
  std::vector<v1::MetricPoint> points;
  const auto add = [&](absl::string_view name, double value) {
    if (!std::isfinite(value)) return;
    v1::MetricPoint& point = points.emplace_back();
    point.set_name(std::string(name));
    point.set_step(report.step);
    point.set_value(value);
    point.set_time_unix_ms(absl::ToUnixMillis(now));
  };
  add(metric::kLoss, report.loss);
  add(metric::kGradientNorm, report.gradient_norm);
  add(metric::kLearningRate, report.learning_rate);
  add(metric::kTokens, static_cast<double>(report.total_tokens));
  add(metric::kTokensPerSecond, TokensPerSecond(report));
  add(metric::kStepSeconds, report.seconds);
  add(metric::kMemoryPeakBytes, static_cast<double>(report.peak_memory_bytes));
  add(metric::kNonfiniteSteps, static_cast<double>(report.nonfinite_steps));
  const auto count = [&](engine::NonfiniteKind kind) {
    return static_cast<double>(report.nonfinite.of(kind));
  };
  add(metric::kNonfiniteActivations, count(engine::NonfiniteKind::kActivation));
  add(metric::kNonfiniteOutputGradients, count(engine::NonfiniteKind::kOutputGradient));
  add(metric::kNonfiniteNormRows, count(engine::NonfiniteKind::kNormRow));
  add(metric::kNonfiniteWeights, count(engine::NonfiniteKind::kWeight));
  if (report.probe.has_value()) {
    const auto& [fp8, bf16] = *report.probe;
    add(metric::kProbeLossFp8, fp8);
    add(metric::kProbeLossBf16, bf16);
    // A BF16 loss of 0 gives NaN or infinity, which `add` leaves out.
    add(metric::kProbeRatio, (fp8 - bf16) / bf16);
  }
  return points;
}

std::string DescribeStep(const engine::StepReport& report, int64_t steps) {
  std::string line = absl::StrFormat(
      "step %d/%d loss %.4f gradient norm %.3g rate %.2e %.0f tokens/s", report.step, steps,
      report.loss, report.gradient_norm, report.learning_rate, TokensPerSecond(report));
  if (report.probe.has_value()) {
    const auto& [fp8, bf16] = *report.probe;
    absl::StrAppendFormat(&line, " probe fp8 %.4f bf16 %.4f", fp8, bf16);
  }
  if (report.applied) return line;
  if (report.step_tokens == 0) return line + " NOT APPLIED: no target token";
  line += " NOT APPLIED: not finite";
  if (report.nonfinite.any()) {
    absl::StrAppend(&line, ", first in ", engine::NameOf(report.nonfinite.first_kind), " of ",
                    report.nonfinite.first_module);
  }
  return line;
}

}  // namespace octavo::trainer
