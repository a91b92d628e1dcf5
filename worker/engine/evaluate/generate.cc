#include "worker/engine/evaluate/generate.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace octavo::engine {
namespace {

struct Sequence {
  std::vector<int32_t> ids;  // prompt, then continuation
  int64_t prompt_tokens = 0;
  bool finished = false;
};

// Unfinished sequences from `first` on, as many as one pass takes; moves `first` past them.
std::vector<Sequence*> NextGroup(std::vector<Sequence>* sequences, int64_t pass_tokens,
                                 size_t* first) {
  std::vector<Sequence*> group;
  int64_t tokens = 0;
  for (; *first < sequences->size(); ++*first) {
    Sequence& sequence = (*sequences)[*first];
    if (sequence.finished) continue;
    const auto length = static_cast<int64_t>(sequence.ids.size());
    if (tokens + length > pass_tokens) break;
    tokens += length;
    group.push_back(&sequence);
  }
  return group;
}

void Append(const float* logits, const GenerationOptions& options, Sequence* sequence) {
  const auto next =
      static_cast<int32_t>(std::max_element(logits, logits + options.vocabulary) - logits);
  if (next == options.end_of_document) {
    sequence->finished = true;
    return;
  }
  sequence->ids.push_back(next);
  const int64_t added = static_cast<int64_t>(sequence->ids.size()) - sequence->prompt_tokens;
  sequence->finished = added >= options.max_new_tokens;
}

// Adds one token to each sequence of the group.
absl::Status Advance(const std::vector<Sequence*>& group, const GenerationOptions& options,
                     Transformer* transformer) {
  std::vector<const std::vector<int32_t>*> parts;
  std::vector<int64_t> last;
  int64_t end = 0;
  for (const Sequence* sequence : group) {
    parts.push_back(&sequence->ids);
    end += static_cast<int64_t>(sequence->ids.size());
    last.push_back(end - 1);
  }
  ASSIGN_OR_RETURN(const std::vector<float> logits,
                   transformer->Logits(PackSequences(parts), last, PolicyTable()));
  const size_t row = logits.size() / group.size();
  for (size_t i = 0; i < group.size(); ++i) Append(&logits[i * row], options, group[i]);
  return absl::OkStatus();
}

}  // namespace

Batch PackSequences(const std::vector<const std::vector<int32_t>*>& sequences) {
  Batch batch;
  batch.rows = 1;
  for (const std::vector<int32_t>* sequence : sequences) {
    const auto start = static_cast<int32_t>(batch.ids.size());
    for (size_t i = 0; i < sequence->size(); ++i) {
      batch.ids.push_back((*sequence)[i]);
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.attend_from.push_back(start);
    }
  }
  batch.sequence = static_cast<int64_t>(batch.ids.size());
  batch.targets.assign(batch.ids.size(), kMasked);
  return batch;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> GenerateGreedily(
    const std::vector<std::vector<int32_t>>& prompts, const GenerationOptions& options,
    Transformer* transformer) {
  std::vector<Sequence> sequences;
  for (const std::vector<int32_t>& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    CHECK(length > 0 && length + options.max_new_tokens <= options.pass_tokens);
    sequences.push_back({.ids = prompt, .prompt_tokens = length});
  }
  for (int64_t token = 0; token < options.max_new_tokens; ++token) {
    size_t first = 0;
    while (true) {
      const std::vector<Sequence*> group = NextGroup(&sequences, options.pass_tokens, &first);
      if (group.empty()) break;
      RETURN_IF_ERROR(Advance(group, options, transformer));
    }
  }
  std::vector<std::vector<int32_t>> continuations;
  for (const Sequence& sequence : sequences) {
    continuations.emplace_back(sequence.ids.begin() + sequence.prompt_tokens, sequence.ids.end());
  }
  return continuations;
}

}  // namespace octavo::engine
