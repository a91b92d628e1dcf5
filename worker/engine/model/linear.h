// Linear layers y = x W^T (+ b) with their three GEMMs, each in FP8 or in BF16 as the pass's policy
// says.
//                         in FP8: A                 B                    in BF16: A    B
//   FProp  y  = x W^T + b   x in row tiles          W in blocks            x           W
//   DGrad  dx = dy W        dy in row tiles         W^T in blocks          dy          W
//   WGrad  dW += dy^T x     dy^T in row tiles       x^T in row tiles       dy          x
// dW is added in FP32 to the flat gradient.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/weight.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/precision/policy.h"

namespace octavo::engine {

// Memory for what backward reads of an input x: x for WGrads in BF16, x^T for those in FP8. Each is
// empty unless the policy needs it at some step.
struct KeptInput {
  kernels::Buffer<kernels::bfloat16> values;  // [tokens, columns]
  QuantizedBuffer transposed;                 // [columns, tokens]
};

// The operation whose result y [tokens, columns] is the input. The group that reads it chooses what
// the operation stores, and fuses it with the quantisation where it can: y as given here is
// scratch, which takes the BF16 values where the policy reads them and no buffer keeps them.
using InputProducer = std::variant<kernels::RmsNormForward, kernels::SwigluForward>;

// The result of a linear layer.
struct LinearOutput {
  kernels::bfloat16* y;                         // [tokens, outputs]
  const kernels::bfloat16* residual = nullptr;  // added before y is rounded; may be y; null: none
};

// One linear layer's weight and GEMMs; a part of LinearGroup.
class Linear {
 public:
  static absl::StatusOr<Linear> Create(const std::string& module, const ParameterIndex& parameters,
                                       const PrecisionPolicy& policy, bool for_training,
                                       kernels::Backend* backend);
  // Makes the copies that `policy` reads.
  absl::Status UpdateWeights(const float* master, const PolicyTable& policy,
                             const NonfiniteCounters& nonfinite, kernels::Backend* backend);

  int64_t module() const { return weight_.module(); }
  int64_t inputs() const { return weight_.columns(); }
  int64_t outputs() const { return weight_.rows(); }
  LinearPolicy policy(const Pass& pass) const { return pass.policy->At(module()); }

  // Where a gradient with respect to the input goes.
  struct InputGradient {
    void* values;  // [tokens, inputs]
    kernels::ResultType type;
    bool accumulate;  // only with kFloat32
  };
  // The input for a BF16 GEMM, and for an FP8 one.
  struct Input {
    const kernels::bfloat16* values;
    kernels::QuantizedTensor quantized;
  };

  // `x.quantized`: x in row tiles.
  absl::Status Forward(const Pass& pass, const Input& x, const LinearOutput& y) const;
  // The tiles of dy [tokens, outputs] that Backward reads, in `memory`; none where it reads none.
  kernels::TileOutputs GradientTiles(const Pass& pass, const TileBuffers& memory) const;
  // Whether Backward reads the values of dy.
  bool ReadsGradientValues(const Pass& pass) const;

  struct OutputGradient {
    const kernels::bfloat16* values;  // [tokens, outputs]
    kernels::TileOutputs tiles;
  };
  // `x.quantized`: x^T in row tiles.
  absl::Status Backward(const Pass& pass, const OutputGradient& dy, const Input& x,
                        const InputGradient& dx) const;

 private:
  absl::Status InputGradientProduct(const Pass& pass, const OutputGradient& dy,
                                    const InputGradient& dx) const;
  absl::Status WeightGradientProduct(const Pass& pass, const OutputGradient& dy,
                                     const Input& x) const;
  const kernels::bfloat16* bias() const { return bias_ ? bias_->data() : nullptr; }

  LinearWeight weight_;
  std::optional<Bfloat16Weight> bias_;
};

// Linear layers that read one input: it is quantised once for all of them, and their gradients with
// respect to it are added in FP32.
class LinearGroup {
 public:
  // Module names, e.g. "model.layers.3.mlp.gate_proj".
  static absl::StatusOr<LinearGroup> Create(const std::vector<std::string>& modules,
                                            const ParameterIndex& parameters,
                                            const PrecisionPolicy& policy, bool for_training,
                                            kernels::Backend* backend);
  absl::Status UpdateWeights(const float* master, const PolicyTable& policy,
                             const NonfiniteCounters& nonfinite, kernels::Backend* backend);
  absl::StatusOr<KeptInput> CreateKeptInput(int64_t max_tokens, kernels::Backend* backend) const;

  // Runs `x` and keeps in `kept` what backward reads. Evaluations keep nothing, so any layer's
  // buffers serve them. `y`: one result per layer, in the order of Create.
  absl::Status Forward(const Pass& pass, const InputProducer& x, const KeptInput& kept,
                       std::initializer_list<LinearOutput> y) const;
  // dx [tokens, inputs] in BF16, and every dW, from one `dy` per layer.
  absl::Status Backward(const Pass& pass, std::initializer_list<const kernels::bfloat16*> dy,
                        const KeptInput& kept, kernels::bfloat16* dx) const;
  // The same of two layers whose dy are dgate and dup; runs `dy`, fused with their quantisation
  // where it can be, and stores of them what is read.
  absl::Status Backward(const Pass& pass, const kernels::SwigluBackward& dy, const KeptInput& kept,
                        kernels::bfloat16* dx) const;

  // The same for an input whose owner keeps it in BF16 until backward, where x^T is then quantised.
  absl::Status Forward(const Pass& pass, const kernels::bfloat16* x,
                       std::initializer_list<LinearOutput> y) const;
  absl::Status Backward(const Pass& pass, std::initializer_list<const kernels::bfloat16*> dy,
                        const kernels::bfloat16* x, kernels::bfloat16* dx) const;

 private:
  // The first layer with that GEMM in that precision at this pass; null: none.
  const Linear* First(const Pass& pass, GemmPrecision LinearPolicy::*gemm,
                      GemmPrecision precision) const;
  // The tiles of x that FProp and, with `transposed`, backward read.
  kernels::TileOutputs InputTiles(const Pass& pass,
                                  const kernels::QuantizedTensor& transposed) const;
  absl::Status Multiply(const Pass& pass, const Linear::Input& x,
                        std::initializer_list<LinearOutput> y) const;
  Linear::Input InputOf(const Pass& pass, const KeptInput& kept) const;
  absl::Status Backward(const Pass& pass, std::initializer_list<const kernels::bfloat16*> dy,
                        const Linear::Input& x, kernels::bfloat16* dx) const;
  // Where the `i`-th layer's part of dx goes, and what makes dx of the parts.
  Linear::InputGradient PartOf(const Pass& pass, size_t i, kernels::bfloat16* dx) const;
  absl::Status JoinParts(const Pass& pass, kernels::bfloat16* dx) const;
  int64_t inputs() const { return linears_.front().inputs(); }

  std::vector<Linear> linears_;
  LinearForms forms_;  // of all of them
};

}  // namespace octavo::engine
