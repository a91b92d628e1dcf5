#include "kernels/check.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::kernels {
namespace {

struct Extent {
  const char* name;
  int64_t value;
};
struct Pointer {
  const char* name;
  const void* value;
};

template <typename... Parts>
absl::Status Invalid(const char* operation, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", parts...));
}

absl::Status CheckExtents(const char* operation, std::initializer_list<Extent> extents) {
  for (const Extent& extent : extents) {
    if (extent.value < 1)
      return Invalid(operation, extent.name, " is ", extent.value, ", must be at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckPointers(const char* operation, std::initializer_list<Pointer> pointers) {
  for (const Pointer& pointer : pointers) {
    if (pointer.value == nullptr) return Invalid(operation, pointer.name, " is null");
  }
  return absl::OkStatus();
}

// An operation over `count` elements does nothing for 0.
absl::Status CheckCount(const char* operation, int64_t count,
                        std::initializer_list<Pointer> pointers) {
  if (count < 0) return Invalid(operation, "count is ", count, ", must not be negative");
  return count == 0 ? absl::OkStatus() : CheckPointers(operation, pointers);
}

absl::Status CheckResult(const char* operation, const void* c, ResultType c_type,
                         const bfloat16* bias, bool accumulate) {
  RETURN_IF_ERROR(CheckPointers(operation, {{"c", c}}));
  if (accumulate && c_type != ResultType::kFloat32)
    return Invalid(operation, "accumulate needs a float32 c; c_type is bfloat16");
  if (accumulate && bias != nullptr)
    return Invalid(operation, "accumulate and bias exclude each other");
  return absl::OkStatus();
}

absl::Status CheckHeads(const char* operation, int64_t heads, int64_t kv_heads) {
  if (heads % kv_heads != 0)
    return Invalid(operation, "heads ", heads, " is not a multiple of kv_heads ", kv_heads);
  return absl::OkStatus();
}

}  // namespace

absl::Status Check(const QuantizeTiles& op) {
  constexpr char kName[] = "QuantizeTiles";
  RETURN_IF_ERROR(CheckExtents(kName, {{"rows", op.rows}, {"columns", op.columns}}));
  RETURN_IF_ERROR(CheckPointers(kName, {{"x", op.x}}));
  if ((op.row_codes == nullptr) != (op.row_scale_inv == nullptr))
    return Invalid(kName, "of row_codes and row_scale_inv one is null");
  if ((op.column_codes == nullptr) != (op.column_scale_inv == nullptr))
    return Invalid(kName, "of column_codes and column_scale_inv one is null");
  return absl::OkStatus();
}

absl::Status Check(const QuantizeBlocks& op) {
  constexpr char kName[] = "QuantizeBlocks";
  RETURN_IF_ERROR(CheckExtents(kName, {{"rows", op.rows}, {"columns", op.columns}}));
  RETURN_IF_ERROR(
      CheckPointers(kName, {{"x", op.x}, {"codes", op.codes}, {"scale_inv", op.scale_inv}}));
  if ((op.transposed_codes == nullptr) != (op.transposed_scale_inv == nullptr))
    return Invalid(kName, "of transposed_codes and transposed_scale_inv one is null");
  return absl::OkStatus();
}

absl::Status Check(const GemmFp8& op) {
  constexpr char kName[] = "GemmFp8";
  RETURN_IF_ERROR(CheckExtents(
      kName, {{"a.rows", op.a.rows}, {"b.rows", op.b.rows}, {"a.columns", op.a.columns}}));
  RETURN_IF_ERROR(CheckPointers(kName, {{"a.codes", op.a.codes},
                                        {"a.scale_inv", op.a.scale_inv},
                                        {"b.codes", op.b.codes},
                                        {"b.scale_inv", op.b.scale_inv}}));
  if (op.a.columns != op.b.columns)
    return Invalid(kName, "a.columns ", op.a.columns, " differs from b.columns ", op.b.columns);
  if (op.a.granularity == Granularity::kBlock128x128 &&
      op.b.granularity == Granularity::kBlock128x128)
    return Invalid(kName, "both operands have 128x128 blocks; quantise one in 1x128 tiles");
  return CheckResult(kName, op.c, op.c_type, op.bias, op.accumulate);
}

absl::Status Check(const GemmBf16& op) {
  constexpr char kName[] = "GemmBf16";
  RETURN_IF_ERROR(CheckExtents(kName, {{"m", op.m}, {"n", op.n}, {"k", op.k}}));
  RETURN_IF_ERROR(CheckPointers(kName, {{"a", op.a}, {"b", op.b}}));
  return CheckResult(kName, op.c, op.c_type, op.bias, op.accumulate);
}

absl::Status Check(const RmsNormForward& op) {
  constexpr char kName[] = "RmsNormForward";
  RETURN_IF_ERROR(CheckExtents(kName, {{"rows", op.rows}, {"columns", op.columns}}));
  return CheckPointers(kName, {{"x", op.x}, {"weight", op.weight}, {"y", op.y}});
}

absl::Status Check(const RmsNormBackward& op) {
  constexpr char kName[] = "RmsNormBackward";
  RETURN_IF_ERROR(CheckExtents(kName, {{"rows", op.rows}, {"columns", op.columns}}));
  if (op.dx != nullptr && (op.dx == op.dy || op.dx == op.x))
    return Invalid(kName, "dx overlaps ", op.dx == op.dy ? "dy" : "x", "; only dx_add may be dx");
  return CheckPointers(kName, {{"dy", op.dy},
                               {"x", op.x},
                               {"weight", op.weight},
                               {"inverse_rms", op.inverse_rms},
                               {"dx", op.dx},
                               {"dweight", op.dweight}});
}

absl::Status Check(const Rope& op) {
  constexpr char kName[] = "Rope";
  RETURN_IF_ERROR(
      CheckExtents(kName, {{"tokens", op.tokens}, {"heads", op.heads}, {"head_dim", op.head_dim}}));
  if (op.head_dim % 2 != 0) return Invalid(kName, "head_dim ", op.head_dim, " is odd");
  return CheckPointers(
      kName, {{"x", op.x}, {"cosine", op.cosine}, {"sine", op.sine}, {"positions", op.positions}});
}

absl::Status Check(const AttentionForward& op) {
  constexpr char kName[] = "AttentionForward";
  RETURN_IF_ERROR(CheckExtents(kName, {{"tokens", op.tokens},
                                       {"heads", op.heads},
                                       {"kv_heads", op.kv_heads},
                                       {"head_dim", op.head_dim}}));
  RETURN_IF_ERROR(CheckHeads(kName, op.heads, op.kv_heads));
  return CheckPointers(
      kName,
      {{"q", op.q}, {"k", op.k}, {"v", op.v}, {"attend_from", op.attend_from}, {"out", op.out}});
}

absl::Status Check(const AttentionBackward& op) {
  constexpr char kName[] = "AttentionBackward";
  RETURN_IF_ERROR(CheckExtents(kName, {{"tokens", op.tokens},
                                       {"heads", op.heads},
                                       {"kv_heads", op.kv_heads},
                                       {"head_dim", op.head_dim}}));
  RETURN_IF_ERROR(CheckHeads(kName, op.heads, op.kv_heads));
  return CheckPointers(kName, {{"q", op.q},
                               {"k", op.k},
                               {"v", op.v},
                               {"out", op.out},
                               {"dout", op.dout},
                               {"log_sum_exp", op.log_sum_exp},
                               {"attend_from", op.attend_from},
                               {"dq", op.dq},
                               {"dk", op.dk},
                               {"dv", op.dv}});
}

absl::Status Check(const Add& op) {
  return CheckCount("Add", op.count, {{"a", op.a}, {"b", op.b}, {"y", op.y}});
}

absl::Status Check(const CastToBfloat16& op) {
  return CheckCount("CastToBfloat16", op.count, {{"x", op.x}, {"y", op.y}});
}

absl::Status Check(const SwigluForward& op) {
  return CheckCount("SwigluForward", op.count, {{"gate", op.gate}, {"up", op.up}, {"y", op.y}});
}

absl::Status Check(const SwigluBackward& op) {
  return CheckCount(
      "SwigluBackward", op.count,
      {{"dy", op.dy}, {"gate", op.gate}, {"up", op.up}, {"dgate", op.dgate}, {"dup", op.dup}});
}

absl::Status Check(const ColumnSum& op) {
  constexpr char kName[] = "ColumnSum";
  RETURN_IF_ERROR(CheckExtents(kName, {{"rows", op.rows}, {"columns", op.columns}}));
  return CheckPointers(kName, {{"x", op.x}, {"out", op.out}});
}

absl::Status Check(const SumOfSquares& op) {
  return CheckCount("SumOfSquares", op.count, {{"x", op.x}, {"result", op.result}});
}

absl::Status Check(const EmbeddingForward& op) {
  constexpr char kName[] = "EmbeddingForward";
  RETURN_IF_ERROR(CheckExtents(kName, {{"tokens", op.tokens}, {"columns", op.columns}}));
  return CheckPointers(kName, {{"table", op.table}, {"ids", op.ids}, {"y", op.y}});
}

absl::Status Check(const EmbeddingBackward& op) {
  constexpr char kName[] = "EmbeddingBackward";
  RETURN_IF_ERROR(CheckExtents(
      kName, {{"tokens", op.tokens}, {"columns", op.columns}, {"vocabulary", op.vocabulary}}));
  return CheckPointers(kName, {{"dy", op.dy}, {"ids", op.ids}, {"dtable", op.dtable}});
}

absl::Status Check(const CrossEntropy& op) {
  constexpr char kName[] = "CrossEntropy";
  RETURN_IF_ERROR(CheckExtents(kName, {{"tokens", op.tokens}, {"vocabulary", op.vocabulary}}));
  return CheckPointers(kName, {{"logits", op.logits}, {"targets", op.targets}, {"loss", op.loss}});
}

absl::Status Check(const AdamW& op) {
  constexpr char kName[] = "AdamW";
  RETURN_IF_ERROR(CheckCount(kName, op.count,
                             {{"master", op.master},
                              {"gradient", op.gradient},
                              {"exp_avg", op.exp_avg},
                              {"exp_avg_sq", op.exp_avg_sq}}));
  if (!(op.correction1 > 0) || !(op.correction2 > 0))
    return Invalid(kName, "corrections ", op.correction1, " and ", op.correction2,
                   " must be above 0; the first step is step 1");
  return absl::OkStatus();
}

}  // namespace octavo::kernels
