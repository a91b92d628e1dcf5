// What Prepare and Inspect both look at before any tensor exists.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/checkpoint/training_state.h"
#include "worker/engine/data/tokenizer.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/shape.h"
#include "worker/engine/precision/policy.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const RunSpec& spec);

// Each INVALID_ARGUMENT with value and limit.
absl::Status CheckSequenceLength(const RunSpec& spec, const ModelConfig& config);
absl::Status CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config);

// FAILED_PRECONDITION when a run that extends another would have no step left to take.
absl::Status CheckExtendedSteps(const RunSpec& spec, const RunState& state);

MemoryEstimate EstimateRunMemory(const RunSpec& spec, const ModelConfig& config,
                                 const PrecisionPolicy& policy, const Place& place);

// Where a run on this backend is.
Place PlaceOf(const kernels::BackendDescription& backend);

// Most tokens that a prompt and its continuation may have: one pass holds micro_batch rows.
int64_t MostPromptTokens(const RunSpec& spec, const ModelConfig& config);

}  // namespace octavo::engine
