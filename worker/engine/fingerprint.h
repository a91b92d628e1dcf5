// What a run that goes on from a checkpoint must find unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/model/config.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

// Grows whenever the engine gives other numbers for the same state and stage than before: another
// rounding, another order of sums, another way to draw. Then old checkpoints are refused by name
// instead of going on as a run that never was.
inline constexpr int64_t kEngineVersion = 3;

// What shapes a run, by its path in the stage.
using Fingerprint = std::map<std::string, std::string>;

// Everything that changes the next step's numbers, by its path in the stage. Paths of files are
// left out: their content counts, wherever it lies. So do evaluations and probes, which change no
// weight; only what the initial held-out loss was measured on is kept, since it is compared with
// the final one.
Fingerprint MakeFingerprint(const RunSpec& spec, const ModelConfig& config,
                            const std::string& corpus_sha256, const std::string& tokenizer_sha256);

// A run that was interrupted agrees in every entry. A run that extends another may take more steps
// and follow another schedule: only `steps`, `schedule.*`, `optimizer.learning_rate` and
// `optimizer.min_learning_rate` may differ, which say where the weights go next but neither what
// they are nor which rows come next.
enum class Continuation { kResume, kExtend };

// FAILED_PRECONDITION that lists each entry that may not differ, with its value then and now.
absl::Status CheckContinues(const Fingerprint& then, const Fingerprint& now,
                            Continuation continuation);

// Its SHA-256 of the corpus; for an inspection that has not packed one.
std::string CorpusOf(const Fingerprint& fingerprint);

// "steps was 8 and is 12", ... of all entries that differ.
std::vector<std::string> Differences(const Fingerprint& then, const Fingerprint& now);

}  // namespace octavo::engine
