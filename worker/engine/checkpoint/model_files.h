// The files of a model folder that describe the model, as they were when the run began.
//
// An export writes them beside the weights, perhaps days later: by then the folder may have been
// moved or edited, or the run goes on elsewhere. So they are read once and kept with every
// checkpoint, and what is wrong with them is refused before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

struct ModelFile {
  std::string name;  // plain
  std::string content;
};

struct ModelFilesOptions {
  bool with_tokenizer = true;  // false: the run's tokenizer is not the folder's
};

class ModelFiles {
 public:
  static constexpr int64_t kMostBytes = int64_t{512} << 20;  // of all together; they stay in memory

  // config.json and what is there of generation_config.json, the tokenizer's files, chat templates
  // and licences. Both configs must be strict JSON; INVALID_ARGUMENT names file and key.
  static absl::StatusOr<ModelFiles> Read(const std::string& folder,
                                         const ModelFilesOptions& options);

  const std::vector<ModelFile>& files() const { return files_; }
  // Null when it is not there.
  const std::string* Find(absl::string_view name) const;

 private:
  std::vector<ModelFile> files_;
};

}  // namespace octavo::engine
