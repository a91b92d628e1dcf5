// Greedy continuation of many prompts at once.
//
// There is no cache of keys and values: each new token costs a whole pass over its prompt. Prompts
// are short where answers are compared, and as many as fit share one pass, each as a document of
// its own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/batch.h"
#include "worker/engine/model/transformer.h"

namespace octavo::engine {

struct GenerationOptions {
  int64_t pass_tokens =
      0;  // most tokens of one pass; no prompt with its continuation may exceed it
  int64_t max_new_tokens = 0;  // of one continuation
  int64_t vocabulary = 0;      // ids from here on are padding of the embedding and never chosen
  int32_t end_of_document = 0;
};

// One row of documents: sequence i attends to itself alone and its positions start at 0. No
// targets.
Batch PackSequences(const std::vector<const std::vector<int32_t>*>& sequences);

// Continuations in the order of the prompts, without the end-of-document token that ended them. The
// most probable token under BF16 is taken, the lowest id where two are equal. No prompt may be
// empty.
absl::StatusOr<std::vector<std::vector<int32_t>>> GenerateGreedily(
    const std::vector<std::vector<int32_t>>& prompts, const GenerationOptions& options,
    Transformer* transformer);

}  // namespace octavo::engine
