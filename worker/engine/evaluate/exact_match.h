// Prompts whose greedy continuations are compared with known answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/data/tokenizer.h"
#include "worker/engine/engine.h"
#include "worker/engine/evaluate/generate.h"
#include "worker/engine/model/transformer.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

struct ExactMatchSet {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> answers;
};

// Rows {"prompt": text, "answer": text} of a .jsonl file, from the first, up to the spec's limit. A
// prompt is encoded like a document: with the tokenizer's begin-of-document token, without its end.
// INVALID_ARGUMENT names file and line: bad rows, prompts that leave no room for max_new_tokens
// within `most_tokens`, a file without rows.
absl::StatusOr<ExactMatchSet> ReadExactMatch(const EvaluationSpec& spec, const Tokenizer& tokenizer,
                                             int64_t most_tokens);

// A continuation is right if its decoded text, up to the end-of-document token, equals the answer.
absl::StatusOr<ExactMatchReport> EvaluateExactMatch(const ExactMatchSet& set,
                                                    const GenerationOptions& options,
                                                    const Tokenizer& tokenizer,
                                                    Transformer* transformer);

}  // namespace octavo::engine
