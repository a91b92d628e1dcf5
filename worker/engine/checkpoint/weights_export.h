// FP32 master weights as a Hugging Face folder in BF16.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/checkpoint/model_files.h"
#include "worker/engine/parameters.h"

namespace octavo::engine {

struct ExportOptions {
  const ModelFiles* model = nullptr;    // outlives the call
  int64_t shard_bytes = 5'000'000'000;  // customary limit of one file
};

// config.json is the model's with every key kept and the stored type set to bfloat16; its other
// files are written byte for byte; generation_config.json, where it has none, is made from the
// config's token ids. `folder` must not exist; it appears complete and durable, or not at all.
absl::Status ExportWeights(const ExportOptions& options, const Parameters& parameters,
                           kernels::Backend* backend, const std::string& folder);

}  // namespace octavo::engine
