#include "worker/engine/evaluate/holdout.h"

#include <algorithm>

#include "base/file.h"
#include "base/status.h"

namespace octavo::engine {
namespace {

void HashRows(const Batch& batch, Sha256* hash) {
  const auto row_bytes = static_cast<size_t>(batch.sequence) * sizeof(int32_t);
  for (int64_t row = 0; row < batch.rows; ++row) {
    hash->Update(batch.ids.data() + row * batch.sequence, row_bytes);
    hash->Update(batch.targets.data() + row * batch.sequence, row_bytes);
  }
}

}  // namespace

absl::StatusOr<std::optional<HoldoutReport>> EvaluateHoldout(const Corpus& corpus,
                                                             const HoldoutOptions& options,
                                                             Transformer* transformer) {
  const int64_t wanted_rows = (options.token_limit + options.row_tokens - 1) / options.row_tokens;
  const int64_t rows = std::min(wanted_rows, corpus.report().holdout_rows);
  Sha256 hash;
  LossSum bf16;
  LossSum fp8;
  for (int64_t row = 0; row < rows; row += options.rows_per_pass) {
    const Batch batch = corpus.HoldoutBatch(row, std::min(options.rows_per_pass, rows - row));
    HashRows(batch, &hash);
    ASSIGN_OR_RETURN(const LossSum loss, transformer->Evaluate(batch, PolicyTable()));
    bf16.sum += loss.sum;
    bf16.tokens += loss.tokens;
    if (!options.with_recipe) continue;
    ASSIGN_OR_RETURN(const LossSum loss_fp8, transformer->Evaluate(batch, transformer->policy()));
    fp8.sum += loss_fp8.sum;
    fp8.tokens += loss_fp8.tokens;
  }
  if (bf16.tokens == 0) return std::nullopt;
  HoldoutReport report;
  report.tokens = bf16.tokens;
  report.tokens_sha256 = hash.Finish();
  report.loss_bf16 = bf16.sum / static_cast<double>(bf16.tokens);
  if (options.with_recipe) report.loss_fp8 = fp8.sum / static_cast<double>(fp8.tokens);
  return report;
}

}  // namespace octavo::engine
