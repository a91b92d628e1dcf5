// One linear layer y = x W^T (+ b) with its three GEMMs, in FP8 or in BF16.
//   FProp   y  = x W^T + b    A: x in row tiles      B: W in blocks
//   DGrad   dx = dy W         A: dy in row tiles     B: W^T in blocks
//   WGrad   dW += dy^T x      A: dy^T in row tiles   B: x^T in row tiles
// dW is added in FP32 to the flat gradient.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/model/weight.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/precision/policy.h"

namespace octavo::engine {

// An activation [tokens, columns] in the forms that the linear layers reading it want.
struct LinearInput {
  const kernels::bfloat16* values;      // of BF16 layers
  kernels::QuantizedTensor rows;        // FProp of FP8 layers
  kernels::QuantizedTensor transposed;  // WGrad of FP8 layers
};

// Where a gradient with respect to an input goes.
struct InputGradient {
  void* values;  // [tokens, columns]
  kernels::ResultType type;
  bool accumulate;  // only with kFloat32
};

// Quantises [tokens, columns] along its rows and, of its transpose, along its columns; either may
// have no data.
struct Quantisation {
  const kernels::bfloat16* values;
  int64_t columns;
  kernels::QuantizedTensor rows;
  kernels::QuantizedTensor transposed;
  uint64_t* nonfinite;  // null: these values were counted before
};
absl::Status Quantize(const Pass& pass, const Quantisation& quantisation);

class Linear {
 public:
  static absl::StatusOr<Linear> Create(const std::string& module, const ParameterIndex& parameters,
                                       const PrecisionPolicy& policy, bool for_training,
                                       kernels::Backend* backend);
  absl::Status UpdateWeights(const float* master, const NonfiniteCounters& nonfinite,
                             kernels::Backend* backend);

  bool is_fp8() const { return fp8_.has_value(); }
  int64_t module() const { return module_; }  // ParameterSpec::module_index
  absl::Status Forward(const Pass& pass, const LinearInput& input, kernels::bfloat16* y) const;
  // `dy` is [tokens, rows of W].
  absl::Status Backward(const Pass& pass, const kernels::bfloat16* dy, const LinearInput& input,
                        const InputGradient& dx) const;

 private:
  absl::Status ForwardBfloat16(const Pass& pass, const kernels::bfloat16* x,
                               kernels::bfloat16* y) const;
  absl::Status BackwardFp8(const Pass& pass, const kernels::bfloat16* dy, const LinearInput& input,
                           const InputGradient& dx) const;
  absl::Status BackwardBfloat16(const Pass& pass, const kernels::bfloat16* dy,
                                const LinearInput& input, const InputGradient& dx) const;
  const kernels::bfloat16* bias() const { return bias_ ? bias_->data() : nullptr; }

  int64_t module_ = 0;
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  int64_t offset_ = 0;            // of the weight in the flat arrays
  std::optional<Fp8Weight> fp8_;  // exactly one of these two
  std::optional<Bfloat16Weight> bf16_;
  std::optional<Bfloat16Weight> bias_;
};

// Which kinds of linear layers read one input.
struct InputReaders {
  bool fp8;        // some are FP8
  bool bf16;       // some are BF16
  int64_t module;  // of the first FP8 reader, under which the input's values are counted
};
InputReaders ReadersOf(std::initializer_list<const Linear*> layers);

// What is kept of an input from forward to backward: FP8 codes of its transpose if FP8 layers read
// it, BF16 if BF16 layers do. Evaluation runs every layer over the buffers of the first, so the
// readers are named anew in each Prepare.
class KeptInput {
 public:
  struct Options {
    int64_t max_tokens;
    int64_t columns;
    InputReaders readers;
    bool for_training;
  };
  static absl::StatusOr<KeptInput> Create(const Options& options, kernels::Backend* backend);

  // Where the producer shall write the input: the kept buffer or, if it need not outlive the block,
  // `scratch`.
  kernels::bfloat16* Destination(const Pass& pass, kernels::bfloat16* scratch) const;
  // After the producer wrote `values`: quantises for forward and keeps what backward needs.
  absl::StatusOr<LinearInput> Prepare(const Pass& pass, const kernels::bfloat16* values,
                                      const InputReaders& readers) const;
  // What was kept.
  LinearInput Restore(const Pass& pass) const;

 private:
  int64_t columns_ = 0;
  QuantizedBuffer transposed_;                 // empty unless FP8 layers read it
  kernels::Buffer<kernels::bfloat16> values_;  // empty unless BF16 layers read it
};

}  // namespace octavo::engine
