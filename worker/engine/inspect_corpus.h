// Training and held-out files as far as an answer within seconds allows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/engine/data/tokenizer.h"
#include "worker/engine/engine.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

struct CorpusInspection {
  std::vector<InspectionProblem> problems;
  std::vector<std::string> warnings;
  int64_t host_bytes = 0;  // 0 when the corpus was not packed
  int64_t train_rows = 0;  // 0: not counted
};

// Corpora that hold more text are not packed: of each file the first rows are read.
inline constexpr int64_t kFullInspectionBytes = int64_t{64} << 20;

// `tokenizer` may be null and `vocabulary` 0 where they could not be read: then the files are only
// opened.
CorpusInspection InspectCorpus(const DataSpec& spec, const Tokenizer* tokenizer,
                               int64_t vocabulary);

}  // namespace octavo::engine
