// What a resumed run must find unchanged.
#pragma once

#include <string>

#include "worker/engine/checkpoint/training_state.h"
#include "worker/engine/model/config.h"
#include "worker/engine/plan.h"

namespace octavo::engine {

// Everything that changes the next step's numbers, by its path in the stage. Paths of files are
// left out: their content counts, wherever it lies. So do evaluations and probes, which change no
// weight; only what the initial held-out loss was measured on is kept, since it is compared with
// the final one.
Fingerprint MakeFingerprint(const RunPlan& plan, const ModelConfig& config,
                            const std::string& corpus_sha256, const std::string& tokenizer_sha256);

}  // namespace octavo::engine
