#include "worker/engine/checkpoint/weights_import.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "kernels/numerics/bfloat16.h"
#include "worker/engine/checkpoint/chunks.h"

namespace octavo::engine {
namespace {

constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";
constexpr absl::string_view kHead = "lm_head.weight";
constexpr size_t kNamesListed = 8;

std::vector<int64_t> ShapeOf(const ParameterSpec& spec) {
  if (spec.is_matrix()) return {spec.rows, spec.columns};
  return {spec.columns};
}

std::string ListNames(const std::vector<std::string>& names) {
  if (names.size() <= kNamesListed) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kNamesListed, ", "), " and ",
                      names.size() - kNamesListed, " more");
}

bool IsReadable(TensorType type) {
  return type == TensorType::kBf16 || type == TensorType::kF16 || type == TensorType::kF32;
}

// Why names may differ altogether.
std::string NamingHint(const std::vector<std::string>& unexpected) {
  for (const std::string& name : unexpected) {
    if (absl::EndsWith(name, ".weight_scale_inv")) {
      return "; FP8 block checkpoints are not read, convert the folder to BF16 first";
    }
    if (absl::StrContains(name, "qweight") || absl::EndsWith(name, ".weight_scale")) {
      return "; quantised checkpoints are not read, use the unquantised BF16 folder";
    }
    if (absl::StartsWith(name, "language_model.")) {
      return "; the folder holds a multimodal model, export its language model alone";
    }
    if (absl::StartsWith(name, "layers.") || absl::StartsWith(name, "embed_tokens.")) {
      return "; names lack the prefix \"model.\", save the model with its language-model head";
    }
  }
  return "";
}

void CheckTensor(const SafetensorsFolder::Tensor& tensor, const ParameterSpec& spec,
                 WeightsCheck* check) {
  const TensorEntry& entry = *tensor.entry;
  if (!IsReadable(entry.type)) {
    const bool fp8 = TensorTypeBits(entry.type) == 8;
    check->problems.push_back(absl::StrCat(
        tensor.file->path(), ": tensor \"", entry.name, "\" is ", TensorTypeName(entry.type),
        fp8 ? "; FP8 and 8-bit checkpoints are not read, convert the folder to BF16 first"
            : "; only BF16, F16 and F32 weights are read"));
  }
  if (entry.shape == ShapeOf(spec)) return;
  check->problems.push_back(
      absl::StrCat(tensor.file->path(), ": tensor \"", entry.name, "\" has shape ",
                   ShapeText(entry.shape), ", config.json makes it ", ShapeText(ShapeOf(spec)),
                   entry.name == kEmbedding ? " (vocab_size, hidden_size)" : ""));
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  kernels::FloatBits result;
  if (magnitude >= 0x7C00u) {  // Inf and NaN
    result.bits = sign | 0x7F800000u | (magnitude & 0x3FFu) << 13;
  } else {
    // The bits, read as a float32, are the value times 2^-112: exact for subnormals too.
    result.bits = magnitude << 13;
    result.value *= 0x1p112f;
    result.bits |= sign;
  }
  return result.value;
}

template <typename Stored, typename Convert>
absl::Status Decode(const SafetensorsFolder::Tensor& tensor, int64_t first, absl::Span<float> out,
                    Convert convert) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Stored));
  std::vector<Stored> stored(out.size());
  RETURN_IF_ERROR(tensor.file->Read(*tensor.entry, first * kSize,
                                    static_cast<int64_t>(out.size()) * kSize, stored.data()));
  std::transform(stored.begin(), stored.end(), out.begin(), convert);
  return absl::OkStatus();
}

// Of two tensors of one size.
absl::StatusOr<bool> HaveEqualBytes(const SafetensorsFolder::Tensor& a,
                                    const SafetensorsFolder::Tensor& b) {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  const int64_t bytes = a.entry->end - a.entry->begin;
  for (int64_t first = 0; first < bytes; first += kPieceBytes) {
    const int64_t size = std::min(bytes - first, kPieceBytes);
    std::string piece_a(static_cast<size_t>(size), '\0');
    std::string piece_b(static_cast<size_t>(size), '\0');
    RETURN_IF_ERROR(a.file->Read(*a.entry, first, size, piece_a.data()));
    RETURN_IF_ERROR(b.file->Read(*b.entry, first, size, piece_b.data()));
    if (piece_a != piece_b) return false;
  }
  return true;
}

absl::Status CompareTiedHead(const SafetensorsFolder& folder, std::vector<std::string>* warnings) {
  const auto head = folder.tensors().find(std::string(kHead));
  const auto embedding = folder.tensors().find(std::string(kEmbedding));
  if (head == folder.tensors().end() || embedding == folder.tensors().end()) {
    return absl::OkStatus();
  }
  bool equal = head->second.entry->shape == embedding->second.entry->shape &&
               head->second.entry->type == embedding->second.entry->type;
  if (equal) {
    ASSIGN_OR_RETURN(equal, HaveEqualBytes(head->second, embedding->second));
  }
  warnings->push_back(absl::StrCat(
      "lm_head.weight is skipped, config.json ties the head to the embedding; the two are ",
      equal ? "equal" : "NOT equal: if the head matters, set tie_word_embeddings to false"));
  return absl::OkStatus();
}

}  // namespace

WeightsCheck CheckWeights(const SafetensorsFolder& folder, const ParameterLayout& layout) {
  WeightsCheck check;
  check.warnings = folder.warnings();
  std::map<std::string, const ParameterSpec*> wanted;
  std::vector<std::string> missing;
  for (const ParameterSpec& spec : layout.parameters) {
    wanted[spec.name] = &spec;
    const auto found = folder.tensors().find(spec.name);
    if (found == folder.tensors().end()) {
      missing.push_back(spec.name);
    } else {
      CheckTensor(found->second, spec, &check);
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : folder.tensors()) {
    // An untied head is wanted, so a head that is not wanted belongs to a tied model.
    const bool skipped = absl::EndsWith(name, "rotary_emb.inv_freq") || name == kHead;
    if (wanted.count(name) == 0 && !skipped) unexpected.push_back(name);
  }
  if (!missing.empty()) {
    check.problems.push_back(
        absl::StrCat("tensors that config.json asks for are missing: ", ListNames(missing)));
  }
  if (!unexpected.empty()) {
    check.problems.push_back(absl::StrCat(
        "tensors that config.json does not know: ", ListNames(unexpected), NamingHint(unexpected)));
  }
  return check;
}

absl::Status ImportWeights(const SafetensorsFolder& folder, const Parameters& parameters,
                           kernels::Backend* backend, std::vector<std::string>* warnings) {
  const WeightsCheck check = CheckWeights(folder, parameters.layout());
  warnings->insert(warnings->end(), check.warnings.begin(), check.warnings.end());
  if (!check.problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(check.problems, "; "));
  }
  bool tied = true;
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    tied = tied && spec.kind != ParameterKind::kHead;
    const SafetensorsFolder::Tensor& tensor = folder.tensors().at(spec.name);
    const absl::Status loaded =
        WriteChunks(backend, parameters.master() + spec.offset, spec.count(),
                    [&](int64_t first, absl::Span<float> piece) -> absl::Status {
                      RETURN_IF_ERROR(DecodeTensor(tensor, first, piece));
                      return CheckFinite(piece, first);
                    });
    if (absl::IsOutOfRange(loaded)) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.file->path(), ": tensor \"", spec.name, "\": ", loaded.message()));
    }
    RETURN_IF_ERROR(loaded);
  }
  return tied ? CompareTiedHead(folder, warnings) : absl::OkStatus();
}

absl::Status DecodeTensor(const SafetensorsFolder::Tensor& tensor, int64_t first,
                          absl::Span<float> out) {
  switch (tensor.entry->type) {
    case TensorType::kF32:
      return Decode<float>(tensor, first, out, [](float value) { return value; });
    case TensorType::kBf16:
      return Decode<kernels::bfloat16>(tensor, first, out,
                                       [](kernels::bfloat16 value) { return ToFloat(value); });
    case TensorType::kF16:
      return Decode<uint16_t>(tensor, first, out, HalfToFloat);
    default:
      CHECK(false);  // CheckWeights lets no other type pass
  }
  return absl::OkStatus();
}

}  // namespace octavo::engine
