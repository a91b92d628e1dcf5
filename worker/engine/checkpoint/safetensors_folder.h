// The tensors of a model folder: `model.safetensors`, or the shards that
// `model.safetensors.index.json` lists.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/checkpoint/safetensors.h"

namespace octavo::engine {

class SafetensorsFolder {
 public:
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const TensorEntry* entry = nullptr;
  };

  // Checks headers, sizes and that index and shards say the same; reads no tensor. Shards may be
  // symbolic links, as in the hub's cache, but an index may only name files of its own folder.
  static absl::StatusOr<SafetensorsFolder> Open(const std::string& folder);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status OpenShards(const std::string& folder);
  absl::Status AddFile(const std::string& path);
  std::map<std::string, SafetensorsFile> files_;  // by path; nodes do not move
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace octavo::engine
