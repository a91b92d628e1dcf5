#include "proto/support/metric_table.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr MetricRow kTable[] = {
    {metric::kLoss, "octavo_train_loss", "nats",
     "Mean negative log-likelihood per target token of the whole optimizer step."},
    {metric::kGradientNorm, "octavo_train_gradient_norm", "1",
     "Global L2 norm of the gradient before clipping."},
    {metric::kLearningRate, "octavo_train_learning_rate", "1", "Learning rate of the step."},
    {metric::kTokens, "octavo_train_tokens", "tokens", "Target tokens trained on so far."},
    {metric::kTokensPerSecond, "octavo_train_tokens_per_second", "tokens/s",
     "Target tokens of the step divided by its wall time."},
    {metric::kStepSeconds, "octavo_train_step_seconds", "seconds",
     "Wall time of the optimizer step, without probe, evaluation and checkpoint."},
    {metric::kMemoryPeakBytes, "octavo_train_memory_peak_bytes", "bytes",
     "Highest memory of the trainer so far: resident set on a CPU, device memory on a GPU."},
    {metric::kNonfiniteSteps, "octavo_train_nonfinite_steps", "steps",
     "Steps so far that were not applied because they met values that are not finite."},
    {metric::kProbeLossFp8, "octavo_divergence_probe_loss_fp8", "nats",
     "Loss of the step's first micro-batch, forward under the FP8 recipe."},
    {metric::kProbeLossBf16, "octavo_divergence_probe_loss_bf16", "nats",
     "Loss of the same micro-batch from the same master weights, forward in BF16."},
    {metric::kProbeRatio, "octavo_divergence_probe_ratio", "ratio",
     "(FP8 loss - BF16 loss) / BF16 loss of the probe: what FP8 arithmetic costs now."},
    {metric::kBaselineLoss, "octavo_divergence_baseline_loss", "nats",
     "Training loss of the baseline job at the same step."},
    {metric::kBaselineRatio, "octavo_divergence_baseline_ratio", "ratio",
     "(loss - baseline loss) / baseline loss at the same step: what training in FP8 costs."},
    {metric::kNonfiniteActivations, "octavo_nonfinite_activations", "count",
     "NaN and Inf values among the inputs of FP8 linear layers in the step, which is then not "
     "applied."},
    {metric::kNonfiniteOutputGradients, "octavo_nonfinite_output_gradients", "count",
     "NaN and Inf values among the output gradients of FP8 linear layers in the step, which is "
     "then not applied."},
    {metric::kNonfiniteNormRows, "octavo_nonfinite_norm_rows", "count",
     "Rows whose sum of squares overflowed in an RMSNorm in the step, which is then not applied."},
    {metric::kNonfiniteWeights, "octavo_nonfinite_weights", "count",
     "Weights that are NaN or Inf in BF16; no step is applied while there is one."},
};

}  // namespace

absl::Span<const MetricRow> MetricTable() { return kTable; }

const MetricRow* FindMetric(absl::string_view name) {
  const auto* row =
      std::find_if(std::begin(kTable), std::end(kTable),
                   [&](const MetricRow& candidate) { return candidate.name == name; });
  return row == std::end(kTable) ? nullptr : row;
}

}  // namespace octavo
