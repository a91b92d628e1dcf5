// What every backend demands of an operation before it runs: INVALID_ARGUMENT names the operation,
// the field and its value. Values inside tensors (ids, positions) are not looked at here.
#pragma once

#include "absl/status/status.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/vocabulary.h"

namespace octavo::kernels {

absl::Status Check(const QuantizeTiles& operation);
absl::Status Check(const QuantizeBlocks& operation);
absl::Status Check(const GemmFp8& operation);
absl::Status Check(const GemmBf16& operation);
absl::Status Check(const RmsNormForward& operation);
absl::Status Check(const RmsNormBackward& operation);
absl::Status Check(const Rope& operation);
absl::Status Check(const AttentionForward& operation);
absl::Status Check(const AttentionBackward& operation);
absl::Status Check(const Add& operation);
absl::Status Check(const CastToBfloat16& operation);
absl::Status Check(const SwigluForward& operation);
absl::Status Check(const SwigluBackward& operation);
absl::Status Check(const ColumnSum& operation);
absl::Status Check(const SumOfSquares& operation);
absl::Status Check(const EmbeddingForward& operation);
absl::Status Check(const EmbeddingBackward& operation);
absl::Status Check(const CrossEntropy& operation);
absl::Status Check(const AdamW& operation);

}  // namespace octavo::kernels
