#include "worker/engine/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/status.h"

namespace octavo::engine {
namespace {

int64_t BytesOf(const TensorToWrite& tensor) {
  int64_t bits = TensorTypeBits(tensor.type);
  for (const int64_t dimension : tensor.shape) bits *= dimension;
  return bits / 8;
}

}  // namespace

std::string SafetensorsPrefix(std::vector<TensorToWrite>* tensors) {
  std::sort(tensors->begin(), tensors->end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    return std::make_tuple(-TensorTypeBits(a.type), std::cref(a.name)) <
           std::make_tuple(-TensorTypeBits(b.type), std::cref(b.name));
  });
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t position = 0;
  for (const TensorToWrite& tensor : *tensors) {
    const int64_t end = position + BytesOf(tensor);
    header[tensor.name] = {{"dtype", std::string(TensorTypeName(tensor.type))},
                           {"shape", tensor.shape},
                           {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string prefix(8, '\0');
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return prefix + text;
}

absl::StatusOr<WrittenFile> WriteSafetensors(const PendingFolder& folder, const std::string& name,
                                             std::vector<TensorToWrite> tensors) {
  ASSIGN_OR_RETURN(PendingFile file, PendingFile::Create(folder, name));
  RETURN_IF_ERROR(file.Write(SafetensorsPrefix(&tensors)));
  for (const TensorToWrite& tensor : tensors) {
    int64_t written = 0;
    RETURN_IF_ERROR(tensor.produce([&](absl::string_view bytes) {
      written += static_cast<int64_t>(bytes.size());
      return file.Write(bytes);
    }));
    CHECK(written == BytesOf(tensor));
  }
  return file.Finish();
}

}  // namespace octavo::engine
