// One micro-batch as the model sees it, on the host. B rows of T tokens, packed; all arrays are
// [B * T], row after row.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo::engine {

inline constexpr int32_t kMasked = -100;  // a target that is not trained on

struct Batch {
  int64_t rows = 0;
  int64_t sequence = 0;
  std::vector<int32_t> ids;
  // targets[i] is the token that position i must predict, i.e. already shifted; kMasked at the end
  // of a document.
  std::vector<int32_t> targets;
  std::vector<int32_t> positions;  // for RoPE; restart at each document when documents are isolated
  std::vector<int32_t>
      attend_from;  // index in [0, B * T) of the first token that token i may attend to

  int64_t tokens() const { return rows * sequence; }
};

// Targets that are trained on.
int64_t CountTargets(const Batch& batch);

}  // namespace octavo::engine
