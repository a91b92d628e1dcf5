// The CPU's implementation of each operation whose fields have been checked; one file a family.
// They use the calling thread's OpenMP team.
#pragma once

#include "absl/status/status.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/scratch.h"
#include "kernels/operation.h"

namespace octavo::kernels::cpu {

absl::Status RunOperation(const Copy& operation);
absl::Status RunOperation(const FillZero& operation);
absl::Status RunOperation(const QuantizeTiles& operation);
absl::Status RunOperation(const QuantizeBlocks& operation);
absl::Status RunOperation(const ReadQuantized& operation);
absl::Status RunOperation(const WriteQuantized& operation);
absl::Status RunOperation(const RmsNormForward& operation);
absl::Status RunOperation(const RmsNormBackward& operation);
absl::Status RunOperation(const Rope& operation);
absl::Status RunOperation(const Add& operation);
absl::Status RunOperation(const CastToBfloat16& operation);
absl::Status RunOperation(const SwigluForward& operation);
absl::Status RunOperation(const SwigluBackward& operation);
absl::Status RunOperation(const ColumnSum& operation);
absl::Status RunOperation(const SumOfSquares& operation);
absl::Status RunOperation(const EmbeddingForward& operation);
absl::Status RunOperation(const EmbeddingBackward& operation);
absl::Status RunOperation(const CrossEntropy& operation);
absl::Status RunOperation(const AddLosses& operation);
absl::Status RunOperation(const DecideStep& operation);
absl::Status RunOperation(const AdamW& operation);
absl::Status RunOperation(const RmsNormQuantize& operation);
absl::Status RunOperation(const SwigluQuantize& operation);
absl::Status RunOperation(const SwigluBackwardQuantize& operation);
absl::Status RunOperation(const HeadNormRope& operation);
absl::Status RunOperation(const HeadNormRopeBackward& operation);

absl::Status RunAttention(const AttentionForward& operation, Scratch* scratch);
absl::Status RunAttention(const AttentionBackward& operation, Scratch* scratch);

// `a_scratch` and `b_scratch` hold the converted operands.
absl::Status RunGemmFp8(const GemmFp8& operation, Matmul* matmul, Scratch* a_scratch,
                        Scratch* b_scratch);

}  // namespace octavo::kernels::cpu
