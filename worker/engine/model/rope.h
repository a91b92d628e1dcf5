// Angles of rotary positions (arXiv:2104.09864) for pairs j = 0 ... head_dim / 2 - 1.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/model/config.h"

namespace octavo::engine {

// Radians by which pair j turns from one position to the next: theta^(-2j / head_dim), scaled.
// [head_dim / 2]
std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t head_dim);

// attention_factor * cos and sin of position * frequency, each [positions, head_dim / 2]: float32
// that hold BF16 values, as the reference modelling code casts them to the activations' type before
// use.
struct RopeTable {
  std::vector<float> cosine;
  std::vector<float> sine;
};
RopeTable MakeRopeTable(const RopeConfig& rope, int64_t head_dim, int64_t positions);

}  // namespace octavo::engine
