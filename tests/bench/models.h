// Shapes that benchmarks train with random weights.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace octavo::bench {

// smollm2-135m: the shape of HuggingFaceTB/SmolLM2-135M. qwen-135m: that of Qwen2.5 (biases of q, k
// and v, two KV heads, a large tied vocabulary) at about the same size. quickstart: the model of
// `octavo example`.
std::vector<std::string> ModelNames();

// Writes `folder`/config.json; the folder is made. `name` is one of ModelNames().
absl::Status WriteModelConfig(const std::string& folder, const std::string& name);

// Writes `folder`/text.txt: 1 MiB of random letters, an empty line after about every 2048 of them.
absl::Status WriteRandomText(const std::string& folder);

}  // namespace octavo::bench
