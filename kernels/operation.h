// Every operation that a backend can be asked for, as one type. A new operation is a struct in
// kernels/ops with a kName, a line here and a check in check.cc; counting, timing, capture and
// the refusal by a backend that lacks it follow from that.
#pragma once

#include <array>
#include <cstddef>
#include <variant>
#include <vector>

#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/fused.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/memory.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/step.h"
#include "kernels/ops/vocabulary.h"

namespace octavo::kernels {

using Operation =
    std::variant<Copy, FillZero, QuantizeTiles, QuantizeBlocks, ReadQuantized, WriteQuantized,
                 GemmFp8, GemmBf16, RmsNormForward, RmsNormBackward, Rope, AttentionForward,
                 AttentionBackward, Add, CastToBfloat16, SwigluForward, SwigluBackward, ColumnSum,
                 SumOfSquares, EmbeddingForward, EmbeddingBackward, CrossEntropy, AddLosses,
                 DecideStep, AdamW, RmsNormQuantize, SwigluQuantize, SwigluBackwardQuantize,
                 HeadNormRope, HeadNormRopeBackward>;

// Operations in their order, with the addresses that they were captured with.
using Program = std::vector<Operation>;

inline constexpr size_t kOperationKinds = std::variant_size_v<Operation>;

template <typename... Operations>
constexpr std::array<const char*, sizeof...(Operations)> NamesOf(
    const std::variant<Operations...>*) {
  return {Operations::kName...};
}

// By Operation::index().
inline constexpr std::array<const char*, kOperationKinds> kOperationNames =
    NamesOf(static_cast<const Operation*>(nullptr));

inline const char* NameOf(const Operation& operation) { return kOperationNames[operation.index()]; }

// The alternatives of a visit, as lambdas.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace octavo::kernels
