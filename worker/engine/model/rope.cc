#include "worker/engine/model/rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/numerics/bfloat16.h"

namespace octavo::engine {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Llama 3's piecewise rule over the wavelength 2 pi / frequency: short waves stay, long ones are
// divided by the factor, those in between are blended linearly in original_max_positions /
// wavelength.
double ScaleLlama3(const RopeConfig& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_max_positions) * frequency / (2 * kPi);
  if (turns > rope.high_frequency_factor) return frequency;
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  const double kept = (turns - rope.low_frequency_factor) /
                      (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - kept) * frequency / rope.factor + kept * frequency;
}

// The pair, as a real number, that makes this many turns within the original positions.
double PairOfTurns(const RopeConfig& rope, int64_t head_dim, double turns) {
  return static_cast<double>(head_dim) *
         std::log(static_cast<double>(rope.original_max_positions) / (turns * 2 * kPi)) /
         (2 * std::log(rope.theta));
}

// YaRN: pairs that make more than beta_fast turns stay, those of fewer than beta_slow are divided
// by the factor, those between are blended linearly in j. The two ends are rounded outwards to
// whole pairs, as the reference modelling code does.
double ScaleYarn(const RopeConfig& rope, int64_t head_dim, int64_t j, double frequency) {
  const double last = static_cast<double>(head_dim - 1);
  const double low = std::max(std::floor(PairOfTurns(rope, head_dim, rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(PairOfTurns(rope, head_dim, rope.beta_slow)), last);
  if (high == low) high += 0.001;
  const double divided = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
  return divided * frequency / rope.factor + (1 - divided) * frequency;
}

float RoundToBfloat16(double x) {
  return kernels::ToFloat(kernels::ToBfloat16(static_cast<float>(x)));
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<double> frequencies(head_dim / 2);
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(head_dim);
    const double frequency = std::pow(rope.theta, exponent);
    switch (rope.scaling) {
      case RopeConfig::Scaling::kNone:
        frequencies[j] = frequency;
        break;
      case RopeConfig::Scaling::kLlama3:
        frequencies[j] = ScaleLlama3(rope, frequency);
        break;
      case RopeConfig::Scaling::kYarn:
        frequencies[j] = ScaleYarn(rope, head_dim, j, frequency);
        break;
    }
  }
  return frequencies;
}

RopeTable MakeRopeTable(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  const std::vector<double> frequencies = RopeFrequencies(rope, head_dim);
  RopeTable table;
  table.cosine.reserve(positions * frequencies.size());
  table.sine.reserve(positions * frequencies.size());
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cosine.push_back(RoundToBfloat16(rope.attention_factor * std::cos(angle)));
      table.sine.push_back(RoundToBfloat16(rope.attention_factor * std::sin(angle)));
    }
  }
  return table;
}

}  // namespace octavo::engine
