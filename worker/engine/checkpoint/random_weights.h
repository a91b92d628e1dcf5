// Random initialisation: matrices normal(0, initializer_range), norms 1, biases 0.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "worker/engine/parameters.h"

namespace octavo::engine {

// Standard normal values of elements first ... first + out.size() - 1 of the parameter `name`: a
// pure function of (seed, name, index), whatever else the model holds.
//
//   key = first 64 bits, little-endian, of SHA-256("octavo/initial-weights/" seed "/" name)
//
//   bits(n) = the n-th number of SplitMix64 with the seed `key`                 (base/split_mix.h)
//
//   u(n) = ((bits(n) >> 11) + 0.5) * 2^-53, in (0, 1)
//
//   elements 2p, 2p + 1 = sqrt(-2 ln u(2p)) * {cos, sin}(2 pi u(2p + 1))    (Box and Muller, 1958)
void FillNormal(uint64_t seed, const std::string& name, int64_t first, absl::Span<float> out);

absl::Status InitialiseWeights(const Parameters& parameters, uint64_t seed,
                               double initializer_range, kernels::Backend* backend);

}  // namespace octavo::engine
