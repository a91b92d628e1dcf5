// The end of the model: final norm, logits over the vocabulary and the loss, all in BF16 with FP32
// sums. Takes the loss over HeadRows tokens at a time, so that logits never exist for a whole
// batch.
//
// Multiplies with the embedding where the model is tied, so that its gradient receives both uses.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/norm.h"
#include "worker/engine/model/weight.h"
#include "worker/engine/model/workspace.h"

namespace octavo::engine {

class Head {
 public:
  static absl::StatusOr<Head> Create(const ModelConfig& config, const ParameterIndex& parameters,
                                     int64_t max_tokens, kernels::Backend* backend);
  absl::Status UpdateWeights(const float* master, const NonfiniteCounters& nonfinite,
                             kernels::Backend* backend) {
    return norm_.UpdateWeights(master, nonfinite, backend);
  }

  // Loss of every token into workspace.loss. x is [N, D]; `weight`, here and below, [V, D].
  absl::Status Loss(const Pass& pass, const Bfloat16Weight& weight, const kernels::bfloat16* x);

  // The same and the backward: writes d(gradient_scale * sum of losses)/dx to `dx`.
  absl::Status LossAndGradient(const Pass& pass, const Bfloat16Weight& weight,
                               const kernels::bfloat16* x, float gradient_scale,
                               kernels::bfloat16* dx);

  // [indices.size(), V]
  absl::StatusOr<std::vector<float>> Logits(const Pass& pass, const Bfloat16Weight& weight,
                                            const kernels::bfloat16* x,
                                            const std::vector<int64_t>& indices);

 private:
  absl::Status Multiply(const Pass& pass, const Bfloat16Weight& weight,
                        const kernels::bfloat16* normalised, int64_t rows) const;
  // Of one chunk: workspace.logits hold d(logits); overwrites `normalised` with its gradient.
  absl::Status BackwardChunk(const Pass& pass, const Bfloat16Weight& weight,
                             kernels::bfloat16* normalised, int64_t rows) const;
  absl::Status ChunkedLoss(const Pass& pass, const Bfloat16Weight& weight,
                           const kernels::bfloat16* x, bool backward, float gradient_scale);

  int64_t vocabulary_ = 0;
  int64_t hidden_ = 0;
  int64_t chunk_rows_ = 0;
  Norm norm_;
  kernels::Buffer<float> inverse_rms_;  // [N]
};

}  // namespace octavo::engine
