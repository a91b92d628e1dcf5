#include "worker/engine/run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "worker/engine/checkpoint/chunks.h"
#include "worker/engine/checkpoint/weights_export.h"
#include "worker/engine/evaluate/holdout.h"
#include "worker/engine/observe/memory.h"
#include "worker/engine/optimizer/schedule.h"

namespace octavo::engine {
namespace {

// A run whose every step is skipped has diverged for good.
constexpr int64_t kMaxConsecutiveNonfiniteSteps = 10;

}  // namespace

absl::StatusOr<std::optional<HoldoutReport>> MeasureHoldout(const RunParts& parts) {
  return EvaluateHoldout(*parts.corpus,
                         {.token_limit = parts.spec.evaluation.holdout_tokens,
                          .row_tokens = parts.spec.data.sequence_length,
                          .rows_per_pass = parts.spec.micro_batch,
                          .with_recipe = parts.transformer->policy().any_fp8_forward()},
                         parts.transformer.get());
}

std::vector<Batch> Run::TakeBatches() const {
  const RunSpec& spec = parts_.spec;
  std::vector<Batch> batches;
  for (int64_t i = 0; i < spec.gradient_accumulation; ++i) {
    batches.push_back(parts_.corpus->TrainBatch(
        spec.seed, parts_.state.samples + i * spec.micro_batch, spec.micro_batch));
  }
  return batches;
}

absl::StatusOr<std::optional<double>> Run::ProbeBf16(const Batch& batch) {
  const int64_t every = parts_.spec.probe_every_steps;
  const bool fp8 = parts_.transformer->policy().any_fp8_forward();
  if (!fp8 || every == 0 || (parts_.state.step + 1) % every != 0) return std::nullopt;
  ASSIGN_OR_RETURN(const LossSum loss, parts_.transformer->Evaluate(batch, PolicyTable()));
  if (loss.tokens == 0) return std::nullopt;
  return loss.sum / static_cast<double>(loss.tokens);
}

absl::Status Run::Enqueue(const std::vector<Batch>& batches, const StepReport& report) {
  const Parameters& parameters = *parts_.parameters;
  RETURN_IF_ERROR(parts_.backend->Run(kernels::FillZero{
      .memory = parameters.gradient(),
      .bytes = parameters.layout().elements * static_cast<int64_t>(sizeof(float))}));
  RETURN_IF_ERROR(parts_.transformer->step().Begin(report.learning_rate));
  const kernels::GemmCounts before = parts_.backend->gemm_counts();
  // One denominator for the whole step, known before the first backward: micro-batches are weighted
  // by their tokens.
  const auto tokens = static_cast<double>(report.step_tokens);
  for (const Batch& batch : batches) {
    RETURN_IF_ERROR(parts_.transformer->Train(batch, 1 / tokens, parameters));
  }
  const kernels::GemmCounts after = parts_.backend->gemm_counts();
  training_gemms_.fp8 += after.fp8 - before.fp8;
  training_gemms_.bf16 += after.bf16 - before.bf16;
  RETURN_IF_ERROR(parts_.optimizer->Update(parameters, parts_.transformer->step()));
  // After a step that was not applied the weights are as before, and so are their copies.
  return parts_.transformer->UpdateWeights(parameters,
                                           std::min(report.step + 1, parts_.spec.steps));
}

absl::Status Run::Read(StepReport* report) {
  ASSIGN_OR_RETURN(const StepReading step, parts_.transformer->step().Read());
  report->loss = step.state.loss.sum / static_cast<double>(step.state.loss.tokens);
  report->gradient_norm = step.state.gradient_norm;
  report->applied = step.state.apply != 0;
  report->nonfinite = step.nonfinite;
  nonfinite_.Add(step.nonfinite);
  parts_.state.applied_updates = step.state.applied_updates;
  // The probe's other half: the same forward pass under the recipe, before the update.
  if (report->probe.has_value()) {
    const kernels::LossTotal& first = step.state.first_loss;
    report->probe->loss_fp8 = first.sum / static_cast<double>(first.tokens);
  }
  return absl::OkStatus();
}

absl::Status Run::CountStep(const StepReport& report) {
  RunState& state = parts_.state;
  ++state.step;
  state.samples += parts_.spec.micro_batch * parts_.spec.gradient_accumulation;
  state.total_tokens += report.step_tokens;
  if (report.step_tokens == 0) {
    ++state.empty_steps;
    return absl::OkStatus();
  }
  if (report.applied) {
    state.consecutive_nonfinite_steps = 0;
    return absl::OkStatus();
  }
  ++state.nonfinite_steps;
  ++state.consecutive_nonfinite_steps;
  if (state.consecutive_nonfinite_steps < kMaxConsecutiveNonfiniteSteps) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string where, DescribeNonfinite(report));
  return absl::OutOfRangeError(absl::StrCat(
      state.consecutive_nonfinite_steps,
      " steps in a row met values that are not finite, the last of them step ", state.step,
      " with loss ", report.loss, " and gradient norm ", report.gradient_norm, where,
      "; lower optimizer.learning_rate, lengthen schedule.warmup_steps or check the data"));
}

// ", first in 3 activations of model.layers.1.mlp.down_proj". What only BF16 products met has no
// counter: it is looked for in the gradients, from the end of the model, where they begin.
absl::StatusOr<std::string> Run::DescribeNonfinite(const StepReport& report) const {
  const NonfiniteCounts& met = report.nonfinite;
  if (met.any()) {
    return absl::StrCat(", first in ", NameOf(met.first_kind), " of ", met.first_module, " (",
                        met.of(met.first_kind), " in the model)");
  }
  const Parameters& parameters = *parts_.parameters;
  const std::vector<ParameterSpec>& specs = parameters.layout().parameters;
  for (auto spec = specs.rbegin(); spec != specs.rend(); ++spec) {
    const absl::Status finite =
        ReadChunks(parts_.backend, parameters.gradient() + spec->offset, spec->count(),
                   [](absl::Span<const float> piece) { return CheckFinite(piece, 0); });
    if (absl::IsOutOfRange(finite)) return absl::StrCat(", first in the gradient of ", spec->name);
    RETURN_IF_ERROR(finite);
  }
  return std::string();
}

absl::StatusOr<StepReport> Run::Step() {
  CHECK(!done());
  StepReport report;
  report.step = parts_.state.step + 1;
  report.learning_rate = LearningRate(parts_.spec, report.step);
  absl::Duration start = clock_.Monotonic();
  const std::vector<Batch> batches = TakeBatches();
  const absl::Duration probe_start = clock_.Monotonic();
  ASSIGN_OR_RETURN(const std::optional<double> probe_bf16, ProbeBf16(batches.front()));
  if (probe_bf16.has_value()) report.probe = Probe{.loss_fp8 = 0, .loss_bf16 = *probe_bf16};
  start += clock_.Monotonic() - probe_start;
  for (const Batch& batch : batches) report.step_tokens += CountTargets(batch);
  report.applied = report.step_tokens > 0;
  if (report.applied) {
    RETURN_IF_ERROR(Enqueue(batches, report));
    RETURN_IF_ERROR(Read(&report));
  }
  RETURN_IF_ERROR(parts_.backend->Synchronize());
  RETURN_IF_ERROR(CountStep(report));
  report.seconds = absl::ToDoubleSeconds(clock_.Monotonic() - start);
  report.total_tokens = parts_.state.total_tokens;
  report.nonfinite_steps = parts_.state.nonfinite_steps;
  report.peak_memory_bytes = PeakResidentBytes();
  return report;
}

absl::StatusOr<std::string> Run::SaveCheckpoint(const std::string& folder) {
  return engine::SaveCheckpoint(
      folder,
      {.state = &parts_.state, .model = &parts_.model_files, .parameters = &*parts_.parameters},
      parts_.backend);
}

absl::StatusOr<FinalReport> Run::Finish() {
  FinalReport report;
  report.initial_holdout = parts_.state.initial_holdout;
  ASSIGN_OR_RETURN(report.holdout, MeasureHoldout(parts_));
  if (parts_.exact_match.has_value()) {
    const GenerationOptions options = {
        .pass_tokens = parts_.spec.micro_batch * parts_.spec.data.sequence_length,
        .max_new_tokens = parts_.spec.evaluation.exact_match_max_new_tokens,
        .vocabulary = parts_.tokenizer->vocabulary_size(),
        .end_of_document = parts_.tokenizer->end_of_document()};
    ASSIGN_OR_RETURN(report.exact_match,
                     EvaluateExactMatch(*parts_.exact_match, options, *parts_.tokenizer,
                                        parts_.transformer.get()));
  }
  report.training_gemms = training_gemms_;
  report.nonfinite = nonfinite_;
  report.parameters = parts_.parameters->layout().parameter_count;
  ASSIGN_OR_RETURN(report.weights_sha256, WeightsSha256(*parts_.parameters, parts_.backend));
  report.warnings = parts_.warnings;
  if (parts_.state.empty_steps > 0) {
    report.warnings.push_back(
        absl::StrCat(parts_.state.empty_steps, " steps had no target token and changed nothing"));
  }
  return report;
}

absl::Status Run::Export(const std::string& folder) {
  return ExportWeights({.model = &parts_.model_files}, *parts_.parameters, parts_.backend, folder);
}

}  // namespace octavo::engine
