// Writes safetensors files: widest type first, then by name, __metadata__ {"format": "pt"}, the
// data aligned to 8 bytes. Equal tensors give equal bytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/checkpoint/pending_folder.h"
#include "worker/engine/checkpoint/safetensors.h"

namespace octavo::engine {

struct TensorToWrite {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  // Calls `write` with the tensor's bytes, in order, in as many pieces as it likes.
  using Sink = std::function<absl::Status(absl::string_view)>;
  std::function<absl::Status(const Sink& write)> produce;
};

// The header with its length and padding, and `tensors` sorted into the order of the data.
std::string SafetensorsPrefix(std::vector<TensorToWrite>* tensors);

absl::StatusOr<WrittenFile> WriteSafetensors(const PendingFolder& folder, const std::string& name,
                                             std::vector<TensorToWrite> tensors);

}  // namespace octavo::engine
