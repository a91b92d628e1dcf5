// Losses on held-out rows.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/engine/data/corpus.h"
#include "worker/engine/engine.h"
#include "worker/engine/model/transformer.h"

namespace octavo::engine {

struct HoldoutOptions {
  int64_t token_limit = 0;    // whole rows are scored, as many as are needed to hold so many tokens
  int64_t row_tokens = 0;     // tokens of one row
  int64_t rows_per_pass = 1;  // memory only: the result is a sum over rows
  bool with_recipe = false;   // also under the transformer's own policy
};

// Absent with a limit of 0 and where the held-out rows have no target. The hash is SHA-256 over
// each row's ids, then its targets, as little-endian int32: what two jobs must share to be
// comparable.
absl::StatusOr<std::optional<HoldoutReport>> EvaluateHoldout(const Corpus& corpus,
                                                             const HoldoutOptions& options,
                                                             Transformer* transformer);

}  // namespace octavo::engine
