#include "kernels/check.h"

#include <initializer_list>
#include <string>
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

// A tensor that an operation over a matrix of `rows` and `columns` writes or reads.
struct TensorField {
  std::string name;
  const QuantizedTensor& tensor;
  Tile tile;  // that the operation gives or takes
  int64_t rows;
  int64_t columns;
};

const char* NameOf(Tile tile) {
  return tile == Tile::k1x128 ? "1x128" : tile == Tile::k128x128 ? "128x128" : "1x32";
}

absl::Status CheckTensor(const std::string& name, const QuantizedTensor& tensor) {
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

// The tiles of a matrix of `rows` and `columns`.
absl::Status CheckTiles(const std::string& name, const TileOutputs& tiles, int64_t rows,
                        int64_t columns) {
  if (tiles.by_rows.data != nullptr)
    RETURN_IF_ERROR(CheckTensor({name + ".by_rows", tiles.by_rows, Tile::k1x128, rows, columns}));
  if (tiles.by_columns.data == nullptr) return absl::OkStatus();
  return CheckTensor({name + ".by_columns", tiles.by_columns, Tile::k1x128, columns, rows});
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

// What the result of a product has to do with it: c [M, N].
template <typename Gemm>
absl::Status CheckResult(const Gemm& op, int64_t n) {
  RETURN_IF_ERROR(CheckPointers({{"c", op.c}}));
  RETURN_IF_ERROR(
      CheckPitches({{"c_pitch", op.c_pitch, n}, {"residual_pitch", op.residual_pitch, n}}));
  if (op.accumulate && op.c_type != ResultType::kFloat32)
    return Invalid("accumulate needs a float32 c; c_type is bfloat16");
  if (op.accumulate && op.bias != nullptr) return Invalid("accumulate and bias exclude each other");
  if (op.residual == nullptr) return absl::OkStatus();
  if (op.c_type != ResultType::kBfloat16)
    return Invalid("residual needs a bfloat16 c; c_type is float32");
  if (op.residual == op.c && PitchOr(op.residual_pitch, n) != PitchOr(op.c_pitch, n))
    return Invalid("residual is c, but residual_pitch ", op.residual_pitch,
                   " differs from c_pitch ", op.c_pitch);
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
  return CheckTiles("tiles", op.tiles, op.rows, op.columns);
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
  return CheckResult(op, b.rows);
}

absl::Status CheckFields(const GemmBf16& op) {
  RETURN_IF_ERROR(CheckExtents({{"m", op.m}, {"n", op.n}, {"k", op.k}}));
  RETURN_IF_ERROR(CheckPointers({{"a", op.a}, {"b", op.b}}));
  RETURN_IF_ERROR(
      CheckPitches({{"a_pitch", op.a_pitch, op.a_layout == Layout::kNormal ? op.k : op.m},
                    {"b_pitch", op.b_pitch, op.b_layout == Layout::kNormal ? op.k : op.n}}));
  return CheckResult(op, op.n);
}

// All but the result, which a fused operation need not store.
absl::Status CheckNorm(const RmsNormForward& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  if (op.nonfinite != nullptr) RETURN_IF_ERROR(CheckPointers({{"inverse_rms", op.inverse_rms}}));
  return CheckPointers({{"x", op.x}, {"weight", op.weight}});
}

absl::Status CheckFields(const RmsNormForward& op) {
  RETURN_IF_ERROR(CheckNorm(op));
  return CheckPointers({{"y", op.y}});
}

absl::Status CheckFields(const RmsNormQuantize& op) {
  RETURN_IF_ERROR(CheckNorm(op.norm));
  RETURN_IF_ERROR(CheckPointers({{"inverse_rms", op.norm.inverse_rms}}));
  return CheckTiles("tiles", op.tiles, op.norm.rows, op.norm.columns);
}

// All but the gradient that comes in, which a fused operation computes.
absl::Status CheckNorm(const RmsNormBackward& op, const bfloat16* dy) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  if (op.dx != nullptr && (op.dx == dy || op.dx == op.x))
    return Invalid("dx overlaps ", op.dx == dy ? "dy" : "x", "; only dx_add may be dx");
  return CheckPointers({{"x", op.x},
                        {"weight", op.weight},
                        {"inverse_rms", op.inverse_rms},
                        {"dx", op.dx},
                        {"dweight", op.dweight}});
}

absl::Status CheckFields(const RmsNormBackward& op) {
  RETURN_IF_ERROR(CheckPointers({{"dy", op.dy}}));
  return CheckNorm(op, op.dy);
}

absl::Status CheckFields(const Rope& op) {
  RETURN_IF_ERROR(
      CheckExtents({{"tokens", op.tokens}, {"heads", op.heads}, {"head_dim", op.head_dim}}));
  if (op.head_dim % 2 != 0) return Invalid("head_dim ", op.head_dim, " is odd");
  RETURN_IF_ERROR(CheckPitches({{"pitch", op.pitch, op.heads * op.head_dim}}));
  return CheckPointers(
      {{"x", op.x}, {"cosine", op.cosine}, {"sine", op.sine}, {"positions", op.positions}});
}

// A norm over the heads that a Rope turns.
template <typename RmsNorm>
absl::Status CheckHeads(const RmsNorm& norm, const Rope& rope) {
  if (norm.rows != rope.tokens * rope.heads)
    return Invalid("norm.rows is ", norm.rows, ", must be rope.tokens * rope.heads, ",
                   rope.tokens * rope.heads);
  if (norm.columns == rope.head_dim) return absl::OkStatus();
  return Invalid("norm.columns is ", norm.columns, ", must be rope.head_dim, ", rope.head_dim);
}

absl::Status CheckFields(const HeadNormRope& op) {
  RETURN_IF_ERROR(CheckNorm(op.norm));
  RETURN_IF_ERROR(CheckFields(op.rope));
  if (op.norm.y != nullptr) return Invalid("norm.y must be null: rope.x takes the result");
  return CheckHeads(op.norm, op.rope);
}

absl::Status CheckFields(const HeadNormRopeBackward& op) {
  RETURN_IF_ERROR(CheckFields(op.rope));
  RETURN_IF_ERROR(CheckNorm(op.norm, op.rope.x));
  if (op.norm.dy != nullptr) return Invalid("norm.dy must be null: rope.x holds the gradient");
  return CheckHeads(op.norm, op.rope);
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

// All but the results, which a fused operation need not store.
absl::Status CheckSwiglu(const SwigluForward& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  return CheckPointers({{"gate", op.gate}, {"up", op.up}});
}

absl::Status CheckSwiglu(const SwigluBackward& op) {
  RETURN_IF_ERROR(CheckExtents({{"rows", op.rows}, {"columns", op.columns}}));
  return CheckPointers({{"dy", op.dy}, {"gate", op.gate}, {"up", op.up}});
}

absl::Status CheckFields(const SwigluForward& op) {
  RETURN_IF_ERROR(CheckSwiglu(op));
  return CheckPointers({{"y", op.y}});
}

absl::Status CheckFields(const SwigluBackward& op) {
  RETURN_IF_ERROR(CheckSwiglu(op));
  return CheckPointers({{"dgate", op.dgate}, {"dup", op.dup}});
}

absl::Status CheckFields(const SwigluQuantize& op) {
  RETURN_IF_ERROR(CheckSwiglu(op.swiglu));
  return CheckTiles("tiles", op.tiles, op.swiglu.rows, op.swiglu.columns);
}

absl::Status CheckFields(const SwigluBackwardQuantize& op) {
  RETURN_IF_ERROR(CheckSwiglu(op.swiglu));
  RETURN_IF_ERROR(CheckTiles("dgate_tiles", op.dgate_tiles, op.swiglu.rows, op.swiglu.columns));
  return CheckTiles("dup_tiles", op.dup_tiles, op.swiglu.rows, op.swiglu.columns);
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
