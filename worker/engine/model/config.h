// config.json of a Hugging Face folder, for the model families that the engine runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/model/shape.h"

namespace octavo::engine {

struct RopeConfig {
  double theta = 10000;
  // kLlama3 follows the published piecewise rule, kYarn arXiv:2309.00071. Other types are refused
  // by name.
  enum class Scaling { kNone, kLlama3, kYarn } scaling = Scaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1;  // of kLlama3, as the next
  double high_frequency_factor = 4;
  double beta_fast = 32;  // of kYarn, as the next two: turns within the original positions
  double beta_slow = 1;
  double attention_factor = 1;  // multiplies cos and sin
  int64_t original_max_positions = 0;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct ModelConfig {
  std::string model_type;
  ModelShape shape;
  RopeConfig rope;
  double rms_norm_epsilon = 1e-6;
  int64_t max_positions = 0;
  int64_t sliding_window = 0;  // tokens that a token attends to, itself included; 0: all
  double initializer_range = 0.02;
  std::vector<int64_t> eos_token_ids;
  int64_t bos_token_id = -1;
};

// Families: llama, mistral, qwen2, qwen3; keys as transformers 4 and 5 spell them.
// INVALID_ARGUMENT names the key, its value and what is supported; a config that names a feature we
// do not have (MoE, a sliding window over some layers only, unknown RoPE scaling, activation other
// than SiLU) is refused, never approximated.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json);
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace octavo::engine
