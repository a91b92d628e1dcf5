#include "worker/engine/checkpoint/chunks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace octavo::engine {

absl::Status ReadChunks(kernels::Backend* backend, const float* source, int64_t count,
                        const std::function<absl::Status(absl::Span<const float>)>& take) {
  std::vector<float> piece(static_cast<size_t>(std::min(count, kChunkElements)));
  for (int64_t first = 0; first < count; first += kChunkElements) {
    const int64_t size = std::min(count - first, kChunkElements);
    RETURN_IF_ERROR(
        backend->CopyOut(piece.data(), source + first, size * static_cast<int64_t>(sizeof(float))));
    RETURN_IF_ERROR(take(absl::MakeConstSpan(piece.data(), static_cast<size_t>(size))));
  }
  return absl::OkStatus();
}

absl::Status WriteChunks(kernels::Backend* backend, float* target, int64_t count,
                         const std::function<absl::Status(int64_t, absl::Span<float>)>& fill) {
  std::vector<float> piece(static_cast<size_t>(std::min(count, kChunkElements)));
  for (int64_t first = 0; first < count; first += kChunkElements) {
    const int64_t size = std::min(count - first, kChunkElements);
    RETURN_IF_ERROR(fill(first, absl::MakeSpan(piece.data(), static_cast<size_t>(size))));
    RETURN_IF_ERROR(
        backend->CopyIn(target + first, piece.data(), size * static_cast<int64_t>(sizeof(float))));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WeightsSha256(const Parameters& parameters, kernels::Backend* backend) {
  Sha256 hash;
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    RETURN_IF_ERROR(ReadChunks(backend, parameters.master() + spec.offset, spec.count(),
                               [&](absl::Span<const float> piece) {
                                 hash.Update(piece.data(), piece.size() * sizeof(float));
                                 return absl::OkStatus();
                               }));
  }
  return hash.Finish();
}

absl::Status CheckFinite(absl::Span<const float> values, int64_t first_index) {
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("element ", first_index + (bad - values.begin()), " is ", *bad));
}

}  // namespace octavo::engine
