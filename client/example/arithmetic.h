// A task that a small model learns within minutes: adding two numbers of three digits.
//
// A document is `321+654=9750`, which is 123 + 456 = 579: every number lowest digit first, padded
// to three digits, the sum to four. So each digit of the sum follows from digits already seen
// (arXiv:2307.03381), at the same two distances for all of them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace octavo {

struct ArithmeticExample {
  uint64_t seed = 1;
  int64_t train_documents = 200000;  // 1 to 10'000'000; problems come more than once
  int64_t heldout = 500;             // 1 to 100'000, of the 1'000'000 problems
};

// Writes into `folder`, which is made:
//   train.txt      a document a line
//   heldout.jsonl  rows {"prompt":"321+654=","answer":"9750"} of problems that train.txt lacks
//   config.json    a Qwen2-shaped model for byte tokens: 0.53 M parameters, of which every
//                  projection is a multiple of 128 wide
// The same options give the same bytes. INVALID_ARGUMENT for options out of range.
absl::Status WriteArithmeticExample(const std::string& folder, const ArithmeticExample& options);

}  // namespace octavo
