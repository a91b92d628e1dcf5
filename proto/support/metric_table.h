// Every training metric of the project: one row feeds the gRPC API, Prometheus, `octavo metrics`
// and the documentation.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octavo {

struct MetricRow {
  absl::string_view name;        // on the wire and in the CLI, e.g. "train/loss"
  absl::string_view prometheus;  // exported gauge, labels {job}; empty: not exported
  absl::string_view
      unit;  // "nats", "tokens/s", "bytes", "seconds", "ratio", "steps", "tokens", "count", "1"
  absl::string_view help;  // one sentence
};

namespace metric {
inline constexpr absl::string_view kLoss = "train/loss";
inline constexpr absl::string_view kGradientNorm = "train/gradient_norm";
inline constexpr absl::string_view kLearningRate = "train/learning_rate";
inline constexpr absl::string_view kTokens = "train/tokens";
inline constexpr absl::string_view kTokensPerSecond = "train/tokens_per_second";
inline constexpr absl::string_view kStepSeconds = "train/step_seconds";
inline constexpr absl::string_view kMemoryPeakBytes = "memory/peak_bytes";
inline constexpr absl::string_view kNonfiniteSteps = "train/nonfinite_steps";
inline constexpr absl::string_view kProbeLossFp8 = "divergence/probe_loss_fp8";
inline constexpr absl::string_view kProbeLossBf16 = "divergence/probe_loss_bf16";
inline constexpr absl::string_view kProbeRatio = "divergence/probe_ratio";
inline constexpr absl::string_view kBaselineLoss = "divergence/baseline_loss";
inline constexpr absl::string_view kBaselineRatio = "divergence/baseline_ratio";
inline constexpr absl::string_view kNonfiniteActivations = "nonfinite/activations";
inline constexpr absl::string_view kNonfiniteOutputGradients = "nonfinite/output_gradients";
inline constexpr absl::string_view kNonfiniteNormRows = "nonfinite/norm_rows";
inline constexpr absl::string_view kNonfiniteWeights = "nonfinite/weights";
}  // namespace metric

absl::Span<const MetricRow> MetricTable();
// Null when there is no such metric.
const MetricRow* FindMetric(absl::string_view name);

}  // namespace octavo
