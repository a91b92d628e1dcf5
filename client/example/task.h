// Tasks of which training problems are drawn without end, for models that learn them in minutes.
//
// cipher: a document is `hqbzamd=umdoznq`: seven letters, and each again, 13 places on in the
// alphabet. Which letter stands where in the answer follows from one earlier letter, so the loss
// falls without a plateau: two recipes can be compared at any step.
//
// arithmetic: a document is `321+654=9750`, which is 123 + 456 = 579: every number lowest digit
// first, padded to three digits, the sum to four (arXiv:2307.03381). One digit of a sum says
// nothing about it, so the model learns it in one jump, at a step that varies several-fold with the
// seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo {

struct Task {
  const char* name;
  const char* summary;
  int64_t problems;  // their number
  std::string (*prompt)(int64_t problem);
  std::string (*answer)(int64_t problem);
};

const std::vector<Task>& Tasks();

struct TaskOptions {
  uint64_t seed = 1;
  int64_t train_documents = 200000;  // 1 to 10'000'000; problems may come more than once
  int64_t heldout = 500;             // 1 to 100'000 problems
};

// Writes into `folder`, which is made:
//   train.txt      a document a line
//   heldout.jsonl  rows {"prompt":"321+654=","answer":"9750"} of problems that train.txt lacks
//   config.json    a Qwen2-shaped model for byte tokens: 0.53 M parameters, of which every
//                  projection is a multiple of 128 wide
// The same options give the same bytes. INVALID_ARGUMENT for options out of range.
absl::Status WriteTask(const Task& task, const std::string& folder, const TaskOptions& options);

}  // namespace octavo
