// Weights of a Hugging Face folder into FP32 master weights.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "worker/engine/checkpoint/safetensors_folder.h"
#include "worker/engine/parameters.h"

namespace octavo::engine {

struct WeightsCheck {
  // Tensors that are missing, unexpected, mis-shaped, of a type not read.
  std::vector<std::string> problems;
  std::vector<std::string> warnings;
};

// Compares names, shapes and types with the layout; reads no tensor. `rotary_emb.inv_freq` buffers
// and the head of a tied model may be there and are skipped.
WeightsCheck CheckWeights(const SafetensorsFolder& folder, const ParameterLayout& layout);

// INVALID_ARGUMENT with every problem of CheckWeights, or naming the tensor and element that is not
// finite.
absl::Status ImportWeights(const SafetensorsFolder& folder, const Parameters& parameters,
                           kernels::Backend* backend, std::vector<std::string>* warnings);

// FP32 values of a BF16, F16 or F32 tensor: elements first ... first + out.size() - 1.
absl::Status DecodeTensor(const SafetensorsFolder::Tensor& tensor, int64_t first,
                          absl::Span<float> out);

}  // namespace octavo::engine
