// A decoder-only transformer with written-out forward and backward, over a Backend.
// B rows, T tokens a row, D hidden, V vocabulary; activations are [B * T, columns].
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/batch.h"
#include "worker/engine/model/config.h"
#include "worker/engine/model/step_record.h"
#include "worker/engine/parameters.h"
#include "worker/engine/precision/linear_policy.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

struct LossSum {
  // Nats over target tokens, float64 over float32 rows, in row order. Of an evaluation that met
  // values that are not finite, NaN: behind a quantisation the sum would hide them.
  double sum = 0;
  int64_t tokens = 0;  // target tokens
};

class Transformer {
 public:
  // Buffers are sized for at most max_tokens (= B * T) a pass; token counts need not be multiples
  // of anything.
  struct Options {
    ModelConfig config;
    RecipeSpec recipe;
    int64_t max_tokens = 0;
    bool for_training = true;  // false: no activations are kept
  };
  // INVALID_ARGUMENT: a pattern of keep_bf16 or of a rule that matches no module.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const Options& options,
                                                             const ParameterLayout& layout,
                                                             kernels::Backend* backend);
  virtual ~Transformer() = default;

  // Casts and quantises new master weights for `step`, counted from 1, which is the next to train;
  // to be called after loading and after every optimizer step. Evaluations under another policy
  // read parameters.master() from then on, so that it must live until the next call and change only
  // right before it.
  virtual absl::Status UpdateWeights(const Parameters& parameters, int64_t step) = 0;

  // The recipe's at the step of the last UpdateWeights.
  virtual const PolicyTable& policy() const = 0;

  // Forward only, under any policy: policy(), PolicyTable() for BF16 everywhere, or another. All of
  // them run from the same master weights. FAILED_PRECONDITION: FP8 under a BF16 recipe.
  virtual absl::StatusOr<LossSum> Evaluate(const Batch& batch, const PolicyTable& policy) = 0;

  // Forward and backward under policy(). Adds gradient_scale * d(sum of token
  // losses)/d(parameter) to parameters.gradient() and the losses to the state of step(), whose
  // Begin comes before the first micro-batch of a step. Waits for nothing.
  virtual absl::Status Train(const Batch& batch, double gradient_scale,
                             const Parameters& parameters) = 0;

  // Logits of the given token indices, [indices.size(), V]; BF16 forward values widened to float32.
  virtual absl::StatusOr<std::vector<float>> Logits(const Batch& batch,
                                                    const std::vector<int64_t>& indices,
                                                    const PolicyTable& policy) = 0;

  // What the passes of Train have added up since its Begin, and the weights since UpdateWeights.
  virtual StepRecord& step() = 0;
};

}  // namespace octavo::engine
