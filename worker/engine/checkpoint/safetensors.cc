#include "worker/engine/checkpoint/safetensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace octavo::engine {
namespace {

struct TypeRow {
  TensorType type;
  absl::string_view name;
  int64_t bits;
};

// In the order of TensorType.
constexpr TypeRow kTypes[] = {
    {TensorType::kBool, "BOOL", 8},
    {TensorType::kU8, "U8", 8},
    {TensorType::kI8, "I8", 8},
    {TensorType::kF8E4M3, "F8_E4M3", 8},
    {TensorType::kF8E5M2, "F8_E5M2", 8},
    {TensorType::kF8E8M0, "F8_E8M0", 8},
    {TensorType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {TensorType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {TensorType::kI16, "I16", 16},
    {TensorType::kU16, "U16", 16},
    {TensorType::kF16, "F16", 16},
    {TensorType::kBf16, "BF16", 16},
    {TensorType::kI32, "I32", 32},
    {TensorType::kU32, "U32", 32},
    {TensorType::kF32, "F32", 32},
    {TensorType::kF64, "F64", 64},
    {TensorType::kI64, "I64", 64},
    {TensorType::kU64, "U64", 64},
    {TensorType::kC64, "C64", 64},
    {TensorType::kF4, "F4", 4},
    {TensorType::kF6E2M3, "F6_E2M3", 6},
    {TensorType::kF6E3M2, "F6_E3M2", 6},
};

}  // namespace

absl::string_view TensorTypeName(TensorType type) { return kTypes[static_cast<int>(type)].name; }
int64_t TensorTypeBits(TensorType type) { return kTypes[static_cast<int>(type)].bits; }

bool ParseTensorType(absl::string_view name, TensorType* type) {
  for (const TypeRow& row : kTypes) {
    if (row.name != name) continue;
    *type = row.type;
    return true;
  }
  return false;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(OpenFile file, OpenFile::Open(path));
  SafetensorsFile result(path, std::move(file));
  const int64_t file_bytes = result.file_.bytes();
  std::string start(static_cast<size_t>(std::min(file_bytes, kSafetensorsLengthBytes)), '\0');
  RETURN_IF_ERROR(result.file_.ReadAt(0, static_cast<int64_t>(start.size()), start.data()));
  ASSIGN_OR_RETURN(const int64_t length, SafetensorsHeaderLength(start, file_bytes, path));
  start.resize(static_cast<size_t>(kSafetensorsLengthBytes + length));
  RETURN_IF_ERROR(
      result.file_.ReadAt(kSafetensorsLengthBytes, length, start.data() + kSafetensorsLengthBytes));
  ASSIGN_OR_RETURN(result.header_, ParseSafetensorsHeader(start, file_bytes, path));
  for (size_t i = 0; i < result.header_.tensors.size(); ++i) {
    result.by_name_.emplace(result.header_.tensors[i].name, i);
  }
  return result;
}

const TensorEntry* SafetensorsFile::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

absl::Status SafetensorsFile::Read(const TensorEntry& entry, int64_t first, int64_t bytes,
                                   void* out) const {
  CHECK(first >= 0 && bytes >= 0 && bytes <= entry.end - entry.begin - first);
  return file_.ReadAt(header_.data_start() + entry.begin + first, bytes, out);
}

}  // namespace octavo::engine
