#include "worker/engine/checkpoint/random_weights.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/split_mix.h"
#include "base/status.h"
#include "worker/engine/checkpoint/chunks.h"

namespace octavo::engine {
namespace {

// The first eight bytes of the digest, the first the least significant.
uint64_t KeyOf(uint64_t seed, const std::string& name) {
  const std::string digest = Sha256Of(absl::StrCat("octavo/initial-weights/", seed, "/", name));
  uint64_t key = 0;
  CHECK(absl::SimpleHexAtoi(absl::string_view(digest).substr(0, 16), &key));
  return __builtin_bswap64(key);
}

double Uniform(uint64_t key, uint64_t n) {
  const uint64_t bits = SplitMix(key + (n + 1) * kSplitMixIncrement);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

void FillNormal(uint64_t seed, const std::string& name, int64_t first, absl::Span<float> out) {
  const uint64_t key = KeyOf(seed, name);
  const auto end = static_cast<uint64_t>(first) + out.size();
  for (uint64_t i = static_cast<uint64_t>(first); i < end;) {
    const uint64_t even = i & ~uint64_t{1};
    const double radius = std::sqrt(-2 * std::log(Uniform(key, even)));
    const double angle = 2 * M_PI * Uniform(key, even + 1);
    for (; i < std::min(even + 2, end); ++i) {
      const double value = radius * (i == even ? std::cos(angle) : std::sin(angle));
      out[i - static_cast<uint64_t>(first)] = static_cast<float>(value);
    }
  }
}

absl::Status InitialiseWeights(const Parameters& parameters, uint64_t seed,
                               double initializer_range, kernels::Backend* backend) {
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    const auto fill = [&](int64_t first, absl::Span<float> piece) {
      if (!spec.is_matrix()) {
        std::fill(piece.begin(), piece.end(), spec.kind == ParameterKind::kNorm ? 1.0f : 0.0f);
        return absl::OkStatus();
      }
      FillNormal(seed, spec.name, first, piece);
      for (float& value : piece) value *= static_cast<float>(initializer_range);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(WriteChunks(backend, parameters.master() + spec.offset, spec.count(), fill));
  }
  return absl::OkStatus();
}

}  // namespace octavo::engine
