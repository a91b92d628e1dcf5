#include "worker/engine/model/linear.h"

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Layout;
using kernels::QuantizedTensor;
using kernels::ResultType;

absl::Status Quantize(const Pass& pass, const Quantisation& quantisation) {
  return pass.backend->Run(kernels::QuantizeTiles{.x = quantisation.values,
                                                  .rows = pass.tokens,
                                                  .columns = quantisation.columns,
                                                  .by_rows = quantisation.rows,
                                                  .by_columns = quantisation.transposed,
                                                  .nonfinite = quantisation.nonfinite});
}

absl::StatusOr<Linear> Linear::Create(const std::string& module, const ParameterIndex& parameters,
                                      const PrecisionPolicy& policy, bool for_training,
                                      kernels::Backend* backend) {
  const ParameterSpec& weight = parameters.Get(module + ".weight");
  Linear linear;
  linear.module_ = weight.module_index;
  linear.outputs_ = weight.rows;
  linear.inputs_ = weight.columns;
  linear.offset_ = weight.offset;
  if (policy.IsFp8(module)) {
    ASSIGN_OR_RETURN(linear.fp8_, Fp8Weight::Create(weight, for_training, backend));
  } else {
    ASSIGN_OR_RETURN(linear.bf16_, Bfloat16Weight::Create(weight, backend));
  }
  if (parameters.Has(module + ".bias")) {
    ASSIGN_OR_RETURN(linear.bias_,
                     Bfloat16Weight::Create(parameters.Get(module + ".bias"), backend));
  }
  return linear;
}

absl::Status Linear::UpdateWeights(const float* master, const NonfiniteCounters& nonfinite,
                                   kernels::Backend* backend) {
  if (fp8_) RETURN_IF_ERROR(fp8_->Update(master, nonfinite, backend));
  if (bf16_) RETURN_IF_ERROR(bf16_->Update(master, nonfinite, backend));
  if (bias_) RETURN_IF_ERROR(bias_->Update(master, nonfinite, backend));
  return absl::OkStatus();
}

absl::Status Linear::Forward(const Pass& pass, const LinearInput& input, bfloat16* y) const {
  if (!fp8_ || !pass.fp8) return ForwardBfloat16(pass, input.values, y);
  return pass.backend->Run(kernels::GemmFp8{.a = input.rows,
                                            .b = fp8_->normal(),
                                            .bias = bias(),
                                            .c = y,
                                            .c_type = ResultType::kBfloat16,
                                            .accumulate = false});
}

absl::Status Linear::ForwardBfloat16(const Pass& pass, const bfloat16* x, bfloat16* y) const {
  const bfloat16* weight = nullptr;
  if (bf16_) {
    weight = bf16_->data();
  } else {
    bfloat16* const scratch = pass.workspace->weight.data();
    RETURN_IF_ERROR(pass.backend->Run(kernels::CastToBfloat16{
        .x = pass.master + offset_, .y = scratch, .count = outputs_ * inputs_}));
    weight = scratch;
  }
  return pass.backend->Run(kernels::GemmBf16{.a = x,
                                             .b = weight,
                                             .a_layout = Layout::kNormal,
                                             .b_layout = Layout::kNormal,
                                             .m = pass.tokens,
                                             .n = outputs_,
                                             .k = inputs_,
                                             .bias = bias(),
                                             .c = y,
                                             .c_type = ResultType::kBfloat16,
                                             .accumulate = false});
}

absl::Status Linear::Backward(const Pass& pass, const bfloat16* dy, const LinearInput& input,
                              const InputGradient& dx) const {
  if (bias_) {
    RETURN_IF_ERROR(pass.backend->Run(kernels::ColumnSum{.x = dy,
                                                         .out = pass.gradient + bias_->offset(),
                                                         .rows = pass.tokens,
                                                         .columns = outputs_}));
  }
  return fp8_ ? BackwardFp8(pass, dy, input, dx) : BackwardBfloat16(pass, dy, input, dx);
}

absl::Status Linear::BackwardFp8(const Pass& pass, const bfloat16* dy, const LinearInput& input,
                                 const InputGradient& dx) const {
  const QuantizedTensor rows = pass.workspace->row_tiles.Tensor(pass.tokens, outputs_);
  const QuantizedTensor columns = pass.workspace->gradient_tiles.Tensor(outputs_, pass.tokens);
  RETURN_IF_ERROR(
      Quantize(pass, {.values = dy,
                      .columns = outputs_,
                      .rows = rows,
                      .transposed = columns,
                      .nonfinite = pass.nonfinite->At(module_, NonfiniteKind::kOutputGradient)}));
  RETURN_IF_ERROR(pass.backend->Run(kernels::GemmFp8{.a = rows,
                                                     .b = fp8_->transposed(),
                                                     .bias = nullptr,
                                                     .c = dx.values,
                                                     .c_type = dx.type,
                                                     .accumulate = dx.accumulate}));
  return pass.backend->Run(kernels::GemmFp8{.a = columns,
                                            .b = input.transposed,
                                            .bias = nullptr,
                                            .c = pass.gradient + offset_,
                                            .c_type = ResultType::kFloat32,
                                            .accumulate = true});
}

absl::Status Linear::BackwardBfloat16(const Pass& pass, const bfloat16* dy,
                                      const LinearInput& input, const InputGradient& dx) const {
  RETURN_IF_ERROR(pass.backend->Run(kernels::GemmBf16{.a = dy,
                                                      .b = bf16_->data(),
                                                      .a_layout = Layout::kNormal,
                                                      .b_layout = Layout::kTransposed,
                                                      .m = pass.tokens,
                                                      .n = inputs_,
                                                      .k = outputs_,
                                                      .bias = nullptr,
                                                      .c = dx.values,
                                                      .c_type = dx.type,
                                                      .accumulate = dx.accumulate}));
  return pass.backend->Run(kernels::GemmBf16{.a = dy,
                                             .b = input.values,
                                             .a_layout = Layout::kTransposed,
                                             .b_layout = Layout::kTransposed,
                                             .m = outputs_,
                                             .n = inputs_,
                                             .k = pass.tokens,
                                             .bias = nullptr,
                                             .c = pass.gradient + offset_,
                                             .c_type = ResultType::kFloat32,
                                             .accumulate = true});
}

InputReaders ReadersOf(std::initializer_list<const Linear*> layers) {
  InputReaders readers = {.fp8 = false, .bf16 = false, .module = 0};
  for (const Linear* layer : layers) {
    if (layer->is_fp8() && !readers.fp8) readers.module = layer->module();
    (layer->is_fp8() ? readers.fp8 : readers.bf16) = true;
  }
  return readers;
}

absl::StatusOr<KeptInput> KeptInput::Create(const Options& options, kernels::Backend* backend) {
  KeptInput kept;
  kept.columns_ = options.columns;
  if (!options.for_training) return kept;
  if (options.readers.fp8) {
    ASSIGN_OR_RETURN(
        kept.transposed_,
        QuantizedBuffer::Create(TileSpec(options.columns, options.max_tokens, kernels::Role::kB),
                                backend));
  }
  if (options.readers.bf16) {
    ASSIGN_OR_RETURN(kept.values_, kernels::Buffer<bfloat16>::Create(
                                       backend, options.max_tokens * options.columns));
  }
  return kept;
}

bfloat16* KeptInput::Destination(const Pass& pass, bfloat16* scratch) const {
  return pass.train && values_.count() > 0 ? values_.data() : scratch;
}

absl::StatusOr<LinearInput> KeptInput::Prepare(const Pass& pass, const bfloat16* values,
                                               const InputReaders& readers) const {
  LinearInput input = {.values = values, .rows = {}, .transposed = {}};
  if (!readers.fp8 || !pass.fp8) return input;
  input.rows = pass.workspace->row_tiles.Tensor(pass.tokens, columns_);
  RETURN_IF_ERROR(Quantize(
      pass,
      {.values = values,
       .columns = columns_,
       .rows = input.rows,
       .transposed = pass.train ? transposed_.Tensor(columns_, pass.tokens) : QuantizedTensor(),
       .nonfinite = pass.nonfinite->At(readers.module, NonfiniteKind::kActivation)}));
  return input;
}

LinearInput KeptInput::Restore(const Pass& pass) const {
  LinearInput input = {.values = values_.data(), .rows = {}, .transposed = {}};
  input.transposed = transposed_.Tensor(columns_, pass.tokens);
  return input;
}

}  // namespace octavo::engine
