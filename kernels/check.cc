#include "kernels/check.h"

#include <initializer_list>
#include <utility>

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
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckExtents(std::initializer_list<Extent> extents) {
  for (const Extent& extent : extents) {
    if (extent.value < 1) return Invalid(extent.name, " is ", extent.value, ", must be at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckPointers(std::initializer_list<Pointer> pointers) {
  for (const Pointer& pointer : pointers) {
    if (pointer.value == nullptr) return Invalid(pointer.name, " is null");
  }
  return absl::OkStatus();
}

// An operation over `count` elements does nothing for 0.
absl::Status CheckCount(int64_t count, std::initializer_list<Pointer> pointers) {
  if (count < 0) return Invalid("count is ", count, ", must not be negative");
  return count == 0 ? absl::OkStatus() : CheckPointers(pointers);
}

absl::Status CheckResult(const void* c, ResultType c_type, const bfloat16* bias, bool accumulate) {
  RETURN_IF_ERROR(CheckPointers({{"c", c}}));
  if (accumulate && c_type != ResultType::kFloat32)
    return Invalid("accumulate needs a float32 c; c_type is bfloat16");
  if (accumulate && bias != nullptr) return Invalid("accumulate and bias exclude each other");
  return absl::OkStatus();
}

// A tensor that an operation over a matrix of `rows` and `columns` writes or reads.
struct TensorField {
  const char* name;
  const QuantizedTensor& tensor;
  Tile tile;  // that the operation gives or takes
  int64_t rows;
  int64_t columns;
};

const char* NameOf(Tile tile) {
  return tile == Tile::k1x128 ? "1x128" : tile == Tile::k128x128 ? "128x128" : "1x32";
}

absl::Status CheckTensor(const char* name, const QuantizedTensor& tensor) {
  const QuantizedSpec& spec = tensor.spec;
  if (tensor.data == nullptr) return Invalid(name, ".data is null");
  if (spec.rows < 1 || spec.columns < 1)
    return Invalid(name, " is ", spec.rows, " x ", spec.columns, ", must be at least 1 x 1");
  if (spec.tile != Tile::k1x32 && spec.scale_type != ScaleType::kE8M0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      name, " has ", NameOf(spec.tile), " tiles with ",
      spec.scale_type == ScaleType::kE8M0 ? "E8M0" : "float32",
      " scales; backends have 1x128 tiles and 128x128 blocks with float32 scales so far"));
}

absl::Status CheckTensor(const TensorField& field) {
  RETURN_IF_ERROR(CheckTensor(field.name, field.tensor));
  const QuantizedSpec& spec = field.tensor.spec;
  if (spec.rows != field.rows || spec.columns != field.columns)
    return Invalid(field.name, " is ", spec.rows, " x ", spec.columns, ", must be ", field.rows,
                   " x ", field.columns);
  if (spec.tile != field.tile)
    return Invalid(field.name, " has ", NameOf(spec.tile), " tiles, must have ",
                   NameOf(field.tile));
  return absl::OkStatus();
}

absl::Status CheckBytes(int64_t bytes, std::initializer_list<Pointer> pointers) {
  if (bytes < 0) return Invalid("bytes is ", bytes, ", must not be negative");
  return bytes == 0 ? absl::OkStatus() : CheckPointers(pointers);
}

struct Pitch {
  const char* name;
  int64_t value;
  int64_t columns;
};

absl::Status CheckPitches(std::initializer_list<Pitch> pitches) {
  for (const Pitch& pitch : pitches) {
    if (pitch.value != 0 && pitch.value < pitch.columns)
      return Invalid(pitch.name, " is ", pitch.value, ", must be 0 or at least ", pitch.columns);
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const Copy& op) {
  return CheckBytes(op.bytes, {{"to", op.to}, {"from", op.from}});
}

absl::Status CheckFields(const FillZero& op) {
  return CheckBytes(op.bytes, {{"memory", op.memory}});
}

absl::Status CheckFields(const QuantizeTiles& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  RETURN_IF_ERROR(CheckPointers({{"x", op.x}}));
  if (op.by_rows.data != nullptr)
    RETURN_IF_ERROR(CheckTensor({"by_rows", op.by_rows, Tile::k1x128, op.rows, op.columns}));
  if (op.by_columns.data != nullptr)
    RETURN_IF_ERROR(CheckTensor({"by_columns", op.by_columns, Tile::k1x128, op.columns, op.rows}));
  return absl::OkStatus();
}

absl::Status CheckFields(const QuantizeBlocks& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  RETURN_IF_ERROR(CheckPointers({{"x", op.x}}));
  if (op.normal.data == nullptr && op.transposed.data == nullptr)
    return Invalid("normal and transposed both have no data");
  if (op.normal.data != nullptr)
    RETURN_IF_ERROR(CheckTensor({"normal", op.normal, Tile::k128x128, op.rows, op.columns}));
  if (op.transposed.data == nullptr) return absl::OkStatus();
  if (op.normal.data != nullptr && op.transposed.spec.element != op.normal.spec.element)
    return Invalid("normal and transposed differ in their element");
  return CheckTensor({"transposed", op.transposed, Tile::k128x128, op.columns, op.rows});
}

absl::Status CheckFields(const ReadQuantized& op) {
  RETURN_IF_ERROR(CheckPointers({{"codes", op.codes}, {"scale_inv", op.scale_inv}}));
  return CheckTensor("tensor", op.tensor);
}

absl::Status CheckFields(const WriteQuantized& op) {
  RETURN_IF_ERROR(CheckPointers({{"codes", op.codes}, {"scale_inv", op.scale_inv}}));
  return CheckTensor("tensor", op.tensor);
}

absl::Status CheckFields(const GemmFp8& op) {
  RETURN_IF_ERROR(CheckTensor("a", op.a));
  RETURN_IF_ERROR(CheckTensor("b", op.b));
  const QuantizedSpec& a = op.a.spec;
  const QuantizedSpec& b = op.b.spec;
  if (a.role != Role::kA || b.role != Role::kB)
    return Invalid(a.role != Role::kA ? "a" : "b",
                   " was quantised for the other side of a product; set its role");
  if (a.columns != b.columns)
    return Invalid("a.columns ", a.columns, " differs from b.columns ", b.columns);
  if (a.tile == Tile::k128x128 && b.tile == Tile::k128x128)
    return Invalid("both operands have 128x128 blocks; quantise one in 1x128 tiles");
  if (a.element == Element::kE5M2 && b.element == Element::kE5M2)
    return Invalid("both operands are E5M2; quantise one in E4M3");
  RETURN_IF_ERROR(CheckPitches({{"c_pitch", op.c_pitch, b.rows}}));
  return CheckResult(op.c, op.c_type, op.bias, op.accumulate);
}

absl::Status CheckFields(const GemmBf16& op) {
  RETURN_IF_ERROR(CheckExtents({{"m", op.m}, {"n", op.n}, {"k", op.k}}));
  RETURN_IF_ERROR(CheckPointers({{"a", op.a}, {"b", op.b}}));
  RETURN_IF_ERROR(
      CheckPitches({{"a_pitch", op.a_pitch, op.a_layout == Layout::kNormal ? op.k : op.m},
                    {"b_pitch", op.b_pitch, op.b_layout == Layout::kNormal ? op.k : op.n},
                    {"c_pitch", op.c_pitch, op.n}}));
  return CheckResult(op.c, op.c_type, op.bias, op.accumulate);
}

absl::Status CheckFields(const RmsNormForward& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  if (op.nonfinite != nullptr) RETURN_IF_ERROR(CheckPointers({{"inverse_rms", op.inverse_rms}}));
  return CheckPointers({{"x", op.x}, {"weight", op.weight}, {"y", op.y}});
}

absl::Status CheckFields(const RmsNormBackward& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  if (op.dx != nullptr && (op.dx == op.dy || op.dx == op.x))
    return Invalid("dx overlaps ", op.dx == op.dy ? "dy" : "x", "; only dx_add may be dx");
  return CheckPointers({{"dy", op.dy},
                        {"x", op.x},
                        {"weight", op.weight},
                        {"inverse_rms", op.inverse_rms},
                        {"dx", op.dx},
                        {"dweight", op.dweight}});
}

absl::Status CheckFields(const Rope& op) {
  RETURN_IF_ERROR(
      CheckExtents({{"tokens", op.tokens}, {"heads", op.heads}, {"head_dim", op.head_dim}}));
  if (op.head_dim % 2 != 0) return Invalid("head_dim ", op.head_dim, " is odd");
  RETURN_IF_ERROR(CheckPitches({{"pitch", op.pitch, op.heads * op.head_dim}}));
  return CheckPointers(
      {{"x", op.x}, {"cosine", op.cosine}, {"sine", op.sine}, {"positions", op.positions}});
}

// What forward and backward have in common.
template <typename Attention>
absl::Status CheckAttention(const Attention& op) {
  RETURN_IF_ERROR(CheckExtents({{"q_tokens", op.q_tokens},
                                {"kv_tokens", op.kv_tokens},
                                {"heads", op.heads},
                                {"kv_heads", op.kv_heads},
                                {"head_dim", op.head_dim}}));
  if (op.q_tokens > op.kv_tokens)
    return Invalid("q_tokens ", op.q_tokens, " exceeds kv_tokens ", op.kv_tokens);
  if (op.heads % op.kv_heads != 0)
    return Invalid("heads ", op.heads, " is not a multiple of kv_heads ", op.kv_heads);
  const int64_t query = op.heads * op.head_dim, key = op.kv_heads * op.head_dim;
  return CheckPitches({{"q_pitch", op.q_pitch, query},
                       {"k_pitch", op.k_pitch, key},
                       {"v_pitch", op.v_pitch, key},
                       {"out_pitch", op.out_pitch, query}});
}

absl::Status CheckFields(const AttentionForward& op) {
  RETURN_IF_ERROR(CheckAttention(op));
  return CheckPointers(
      {{"q", op.q}, {"k", op.k}, {"v", op.v}, {"attend_from", op.attend_from}, {"out", op.out}});
}

absl::Status CheckFields(const AttentionBackward& op) {
  RETURN_IF_ERROR(CheckAttention(op));
  const int64_t query = op.heads * op.head_dim, key = op.kv_heads * op.head_dim;
  RETURN_IF_ERROR(CheckPitches({{"dout_pitch", op.dout_pitch, query},
                                {"dq_pitch", op.dq_pitch, query},
                                {"dk_pitch", op.dk_pitch, key},
                                {"dv_pitch", op.dv_pitch, key}}));
  return CheckPointers({{"q", op.q},
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

absl::Status CheckFields(const Add& op) {
  return CheckCount(op.count, {{"a", op.a}, {"b", op.b}, {"y", op.y}});
}

absl::Status CheckFields(const CastToBfloat16& op) {
  return CheckCount(op.count, {{"x", op.x}, {"y", op.y}});
}

absl::Status CheckFields(const SwigluForward& op) {
  return CheckCount(op.count, {{"gate", op.gate}, {"up", op.up}, {"y", op.y}});
}

absl::Status CheckFields(const SwigluBackward& op) {
  return CheckCount(
      op.count,
      {{"dy", op.dy}, {"gate", op.gate}, {"up", op.up}, {"dgate", op.dgate}, {"dup", op.dup}});
}

absl::Status CheckFields(const ColumnSum& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  return CheckPointers({{"x", op.x}, {"out", op.out}});
}

absl::Status CheckFields(const SumOfSquares& op) {
  return CheckCount(op.count, {{"x", op.x}, {"result", op.result}});
}

absl::Status CheckFields(const EmbeddingForward& op) {
  RETURN_IF_ERROR(CheckExtents({{"tokens", op.tokens}, {"columns", op.columns}}));
  return CheckPointers({{"table", op.table}, {"ids", op.ids}, {"y", op.y}});
}

absl::Status CheckFields(const EmbeddingBackward& op) {
  RETURN_IF_ERROR(CheckExtents(
      {{"tokens", op.tokens}, {"columns", op.columns}, {"vocabulary", op.vocabulary}}));
  return CheckPointers({{"dy", op.dy}, {"ids", op.ids}, {"dtable", op.dtable}});
}

absl::Status CheckFields(const CrossEntropy& op) {
  RETURN_IF_ERROR(CheckExtents({{"tokens", op.tokens}, {"vocabulary", op.vocabulary}}));
  return CheckPointers({{"logits", op.logits}, {"targets", op.targets}, {"loss", op.loss}});
}

absl::Status CheckFields(const AddLosses& op) {
  return CheckCount(op.tokens, {{"loss", op.loss}, {"targets", op.targets}, {"total", op.total}});
}

absl::Status CheckFields(const DecideStep& op) {
  for (const auto& [name, beta] : {std::pair("beta1", op.beta1), std::pair("beta2", op.beta2)}) {
    if (!(beta >= 0 && beta < 1))
      return Invalid(name, " is ", beta, ", must be in [0, 1): corrections divide");
  }
  RETURN_IF_ERROR(CheckCount(op.counters, {{"nonfinite", op.nonfinite}}));
  return CheckPointers({{"state", op.state}});
}

absl::Status CheckFields(const AdamW& op) {
  return CheckCount(op.count, {{"master", op.master},
                               {"gradient", op.gradient},
                               {"exp_avg", op.exp_avg},
                               {"exp_avg_sq", op.exp_avg_sq},
                               {"state", op.state}});
}

}  // namespace

absl::Status Check(const Operation& operation) {
  const absl::Status status =
      std::visit([](const auto& fields) { return CheckFields(fields); }, operation);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(NameOf(operation), ": ", status.message()));
}

}  // namespace octavo::kernels
