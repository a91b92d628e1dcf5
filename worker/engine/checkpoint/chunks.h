// Flat FP32 arrays of a backend in pieces that a host buffer can hold.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "worker/engine/parameters.h"

namespace octavo::engine {

// Elements of one piece: 4 MiB.
inline constexpr int64_t kChunkElements = int64_t{1} << 20;

// Calls `take` with consecutive pieces of source[0, count).
absl::Status ReadChunks(kernels::Backend* backend, const float* source, int64_t count,
                        const std::function<absl::Status(absl::Span<const float>)>& take);

// Calls `fill(first, piece)` for consecutive pieces and stores them in target[0, count).
absl::Status WriteChunks(kernels::Backend* backend, float* target, int64_t count,
                         const std::function<absl::Status(int64_t, absl::Span<float>)>& fill);

// SHA-256 over the FP32 master weights in the order of the layout, without its padding.
absl::StatusOr<std::string> WeightsSha256(const Parameters& parameters, kernels::Backend* backend);

// "element 7 is nan" of the first value that is not finite; OUT_OF_RANGE.
absl::Status CheckFinite(absl::Span<const float> values, int64_t first_index);

}  // namespace octavo::engine
