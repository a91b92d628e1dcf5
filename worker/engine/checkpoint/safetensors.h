// The safetensors container, read strictly and written canonically.
//
//   bytes 0-7   n, the length of the header, unsigned 64-bit little-endian
//   n bytes     JSON {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {}}
//   the rest    tensors, row-major, little-endian, at 8 + n + begin
//
// Format: github.com/huggingface/safetensors, README.md. The reader refuses what that document
// forbids and the official reader lets pass: duplicate keys, holes, text around the object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"

namespace octavo::engine {

enum class TensorType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
  kC64,
  kF4,
  kF6E2M3,
  kF6E3M2,
};

absl::string_view TensorTypeName(TensorType type);  // as in a header, e.g. "BF16"
int64_t TensorTypeBits(TensorType type);
// False: no such name.
bool ParseTensorType(absl::string_view name, TensorType* type);

struct TensorEntry {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  int64_t begin = 0;           // bytes from the start of the data
  int64_t end = 0;
};
// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // by ascending offsets, without holes
  int64_t length = 0;                // of the JSON text, its padding included
  int64_t data_start() const { return 8 + length; }
};

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // the official reader's limit

// `start`: the first bytes of a file that has `file_bytes`, 8 of them or the whole file if that is
// shorter. Returns n, which is within the format's limit and within the file.
absl::StatusOr<int64_t> SafetensorsHeaderLength(absl::string_view start, int64_t file_bytes,
                                                const std::string& path);
// `start`: the first 8 + n bytes at least. Every violation is INVALID_ARGUMENT, names `path` and,
// where one is concerned, the tensor.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view start,
                                                         int64_t file_bytes,
                                                         const std::string& path);

// Opening a file checks its header against its size and reads no tensor.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Null when there is no such tensor.
  const TensorEntry* Find(absl::string_view name) const;
  // Bytes [first, first + bytes) of the tensor. DATA_LOSS: the file was cut off since it was
  // opened.
  absl::Status Read(const TensorEntry& entry, int64_t first, int64_t bytes, void* out) const;

 private:
  SafetensorsFile(std::string path, OpenFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  OpenFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace octavo::engine
