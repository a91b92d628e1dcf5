#include "worker/engine/inputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace octavo::engine {

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const RunSpec& spec) {
  if (spec.data.tokenizer == DataSpec::TokenizerKind::kByte) return MakeByteTokenizer();
  return LoadTokenizer(spec.model.folder);
}

absl::Status CheckSequenceLength(const RunSpec& spec, const ModelConfig& config) {
  if (spec.data.sequence_length <= config.max_positions) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sequence_length ", spec.data.sequence_length,
                                                 " is above the model's max_position_embeddings ",
                                                 config.max_positions, "; write at most that"));
}

absl::Status CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  if (tokenizer.vocabulary_size() <= config.shape.vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the tokenizer's ids reach ", tokenizer.vocabulary_size() - 1,
                   ", config.json's vocab_size is ", config.shape.vocabulary,
                   "; use the tokenizer that belongs to the model or a vocab_size of at least ",
                   tokenizer.vocabulary_size()));
}

absl::Status CheckExtendedSteps(const RunSpec& spec, const RunState& state) {
  if (spec.steps > state.step) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(spec.extend_checkpoint, ": steps is ", spec.steps, " and the checkpoint has ",
                   state.step, " behind it already; write the steps of both runs together"));
}

MemoryEstimate EstimateRunMemory(const RunSpec& spec, const ModelConfig& config,
                                 const PrecisionPolicy& policy, const Place& place) {
  return EstimateMemory(config.shape,
                        {.micro_batch = spec.micro_batch,
                         .sequence = spec.data.sequence_length,
                         .fp8 = policy.any_fp8(),
                         .linears = policy.linear_forms()},
                        place);
}

Place PlaceOf(const kernels::BackendDescription& backend) {
  return {.backend = backend.name, .machine = backend.machine};
}

int64_t MostPromptTokens(const RunSpec& spec, const ModelConfig& config) {
  return std::min(spec.micro_batch * spec.data.sequence_length, config.max_positions);
}

}  // namespace octavo::engine
