// state.json of a checkpoint.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/checkpoint/training_state.h"

namespace octavo::engine {

std::string PrintRunState(const RunState& state);
// DATA_LOSS names `path` and the key.
absl::StatusOr<RunState> ParseRunState(absl::string_view text, const std::string& path);

}  // namespace octavo::engine
