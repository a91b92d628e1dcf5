#include "worker/engine/model/linear.h"

#include <utility>

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Layout;
using kernels::Operation;
using kernels::QuantizedTensor;
using kernels::ResultType;
using kernels::TileOutputs;

namespace {

bool IsFp8(GemmPrecision precision) { return precision == GemmPrecision::kFp8; }

bfloat16* ScratchOf(const InputProducer& producer) {
  return std::visit([](const auto& operation) { return operation.y; }, producer);
}

// The operation that stores its result at `y` and in tiles; each of them may be nowhere.
Operation Producing(const InputProducer& producer, bfloat16* y, const TileOutputs& tiles) {
  return std::visit(
      kernels::Overloaded{[&](kernels::RmsNormForward norm) -> Operation {
                            norm.y = y;
                            if (!tiles.wanted()) return norm;
                            return kernels::RmsNormQuantize{.norm = norm, .tiles = tiles};
                          },
                          [&](kernels::SwigluForward swiglu) -> Operation {
                            swiglu.y = y;
                            if (!tiles.wanted()) return swiglu;
                            return kernels::SwigluQuantize{.swiglu = swiglu, .tiles = tiles};
                          }},
      producer);
}

absl::Status Quantize(const Pass& pass, const bfloat16* x, int64_t columns,
                      const TileOutputs& tiles) {
  if (!tiles.wanted()) return absl::OkStatus();
  return pass.backend->Run(
      kernels::QuantizeTiles{.x = x, .rows = pass.tokens, .columns = columns, .tiles = tiles});
}

}  // namespace

absl::StatusOr<Linear> Linear::Create(const std::string& module, const ParameterIndex& parameters,
                                      const PrecisionPolicy& policy, bool for_training,
                                      kernels::Backend* backend) {
  const ParameterSpec& weight = parameters.Get(module + ".weight");
  LinearForms forms = policy.forms(weight.module_index);
  if (!for_training) forms.fp8_transposed_weight = false;
  Linear linear;
  ASSIGN_OR_RETURN(linear.weight_, LinearWeight::Create(weight, forms, backend));
  if (parameters.Has(module + ".bias")) {
    ASSIGN_OR_RETURN(linear.bias_,
                     Bfloat16Weight::Create(parameters.Get(module + ".bias"), backend));
  }
  return linear;
}

absl::Status Linear::UpdateWeights(const float* master, const PolicyTable& policy,
                                   const NonfiniteCounters& nonfinite, kernels::Backend* backend) {
  RETURN_IF_ERROR(weight_.Update(master, policy.At(module()), nonfinite, backend));
  return bias_ ? bias_->Update(master, nonfinite, backend) : absl::OkStatus();
}

absl::Status Linear::Forward(const Pass& pass, const Input& x, const LinearOutput& y) const {
  if (IsFp8(policy(pass).fprop)) {
    ASSIGN_OR_RETURN(const QuantizedTensor weight,
                     weight_.Quantized(pass.master, pass.workspace->weight_codes, pass.backend));
    return pass.backend->Run(kernels::GemmFp8{.a = x.quantized,
                                              .b = weight,
                                              .bias = bias(),
                                              .c = y.y,
                                              .c_type = ResultType::kBfloat16,
                                              .accumulate = false,
                                              .residual = y.residual});
  }
  ASSIGN_OR_RETURN(const bfloat16* const weight,
                   weight_.Bfloat16(pass.master, pass.workspace->weight.data(), pass.backend));
  return pass.backend->Run(kernels::GemmBf16{.a = x.values,
                                             .b = weight,
                                             .a_layout = Layout::kNormal,
                                             .b_layout = Layout::kNormal,
                                             .m = pass.tokens,
                                             .n = outputs(),
                                             .k = inputs(),
                                             .bias = bias(),
                                             .c = y.y,
                                             .c_type = ResultType::kBfloat16,
                                             .accumulate = false,
                                             .residual = y.residual});
}

TileOutputs Linear::GradientTiles(const Pass& pass, const TileBuffers& memory) const {
  const LinearPolicy policy = this->policy(pass);
  TileOutputs tiles = {};
  if (IsFp8(policy.dgrad)) tiles.by_rows = memory.by_rows.Tensor(pass.tokens, outputs());
  if (IsFp8(policy.wgrad)) tiles.by_columns = memory.by_columns.Tensor(outputs(), pass.tokens);
  tiles.by_rows.spec.element = tiles.by_columns.spec.element = policy.gradient;
  if (tiles.wanted())
    tiles.nonfinite = pass.nonfinite->At(module(), NonfiniteKind::kOutputGradient);
  return tiles;
}

bool Linear::ReadsGradientValues(const Pass& pass) const {
  const LinearPolicy policy = this->policy(pass);
  return bias_ || !IsFp8(policy.dgrad) || !IsFp8(policy.wgrad);
}

absl::Status Linear::Backward(const Pass& pass, const OutputGradient& dy, const Input& x,
                              const InputGradient& dx) const {
  if (bias_) {
    RETURN_IF_ERROR(pass.backend->Run(kernels::ColumnSum{.x = dy.values,
                                                         .out = pass.gradient + bias_->offset(),
                                                         .rows = pass.tokens,
                                                         .columns = outputs()}));
  }
  RETURN_IF_ERROR(InputGradientProduct(pass, dy, dx));
  return WeightGradientProduct(pass, dy, x);
}

absl::Status Linear::InputGradientProduct(const Pass& pass, const OutputGradient& dy,
                                          const InputGradient& dx) const {
  if (IsFp8(policy(pass).dgrad)) {
    return pass.backend->Run(kernels::GemmFp8{.a = dy.tiles.by_rows,
                                              .b = weight_.QuantizedTransposed(),
                                              .bias = nullptr,
                                              .c = dx.values,
                                              .c_type = dx.type,
                                              .accumulate = dx.accumulate});
  }
  ASSIGN_OR_RETURN(const bfloat16* const weight,
                   weight_.Bfloat16(pass.master, pass.workspace->weight.data(), pass.backend));
  return pass.backend->Run(kernels::GemmBf16{.a = dy.values,
                                             .b = weight,
                                             .a_layout = Layout::kNormal,
                                             .b_layout = Layout::kTransposed,
                                             .m = pass.tokens,
                                             .n = inputs(),
                                             .k = outputs(),
                                             .bias = nullptr,
                                             .c = dx.values,
                                             .c_type = dx.type,
                                             .accumulate = dx.accumulate});
}

absl::Status Linear::WeightGradientProduct(const Pass& pass, const OutputGradient& dy,
                                           const Input& x) const {
  float* const gradient = pass.gradient + weight_.offset();
  if (IsFp8(policy(pass).wgrad)) {
    return pass.backend->Run(kernels::GemmFp8{.a = dy.tiles.by_columns,
                                              .b = x.quantized,
                                              .bias = nullptr,
                                              .c = gradient,
                                              .c_type = ResultType::kFloat32,
                                              .accumulate = true});
  }
  return pass.backend->Run(kernels::GemmBf16{.a = dy.values,
                                             .b = x.values,
                                             .a_layout = Layout::kTransposed,
                                             .b_layout = Layout::kTransposed,
                                             .m = outputs(),
                                             .n = inputs(),
                                             .k = pass.tokens,
                                             .bias = nullptr,
                                             .c = gradient,
                                             .c_type = ResultType::kFloat32,
                                             .accumulate = true});
}

absl::StatusOr<LinearGroup> LinearGroup::Create(const std::vector<std::string>& modules,
                                                const ParameterIndex& parameters,
                                                const PrecisionPolicy& policy, bool for_training,
                                                kernels::Backend* backend) {
  LinearGroup group;
  for (const std::string& module : modules) {
    ASSIGN_OR_RETURN(Linear linear,
                     Linear::Create(module, parameters, policy, for_training, backend));
    const LinearForms& forms = policy.forms(linear.module());
    group.forms_.bf16_input |= for_training && forms.bf16_input;
    group.forms_.fp8_input |= for_training && forms.fp8_input;
    group.linears_.push_back(std::move(linear));
  }
  return group;
}

absl::Status LinearGroup::UpdateWeights(const float* master, const PolicyTable& policy,
                                        const NonfiniteCounters& nonfinite,
                                        kernels::Backend* backend) {
  for (Linear& linear : linears_) {
    RETURN_IF_ERROR(linear.UpdateWeights(master, policy, nonfinite, backend));
  }
  return absl::OkStatus();
}

absl::StatusOr<KeptInput> LinearGroup::CreateKeptInput(int64_t max_tokens,
                                                       kernels::Backend* backend) const {
  KeptInput kept;
  if (forms_.fp8_input) {
    ASSIGN_OR_RETURN(
        kept.transposed,
        QuantizedBuffer::Create(TileSpec(inputs(), max_tokens, kernels::Role::kB), backend));
  }
  if (forms_.bf16_input) {
    ASSIGN_OR_RETURN(kept.values,
                     kernels::Buffer<bfloat16>::Create(backend, max_tokens * inputs()));
  }
  return kept;
}

const Linear* LinearGroup::First(const Pass& pass, GemmPrecision LinearPolicy::*gemm,
                                 GemmPrecision precision) const {
  for (const Linear& linear : linears_) {
    if (linear.policy(pass).*gemm == precision) return &linear;
  }
  return nullptr;
}

TileOutputs LinearGroup::InputTiles(const Pass& pass, const QuantizedTensor& transposed) const {
  TileOutputs tiles = {.by_rows = {}, .by_columns = transposed};
  const Linear* reader = First(pass, &LinearPolicy::fprop, GemmPrecision::kFp8);
  if (reader != nullptr)
    tiles.by_rows = pass.workspace->tiles.by_rows.Tensor(pass.tokens, inputs());
  if (reader == nullptr && transposed.data != nullptr)
    reader = First(pass, &LinearPolicy::wgrad, GemmPrecision::kFp8);
  if (reader != nullptr)
    tiles.nonfinite = pass.nonfinite->At(reader->module(), NonfiniteKind::kActivation);
  return tiles;
}

absl::Status LinearGroup::Forward(const Pass& pass, const InputProducer& x, const KeptInput& kept,
                                  std::initializer_list<LinearOutput> y) const {
  bfloat16* values = nullptr;
  if (First(pass, &LinearPolicy::fprop, GemmPrecision::kBf16) != nullptr) values = ScratchOf(x);
  QuantizedTensor transposed = {};
  if (pass.train) {
    if (First(pass, &LinearPolicy::wgrad, GemmPrecision::kBf16) != nullptr)
      values = kept.values.data();
    if (First(pass, &LinearPolicy::wgrad, GemmPrecision::kFp8) != nullptr)
      transposed = kept.transposed.Tensor(inputs(), pass.tokens);
  }
  const TileOutputs tiles = InputTiles(pass, transposed);
  RETURN_IF_ERROR(pass.backend->Run(Producing(x, values, tiles)));
  return Multiply(pass, {.values = values, .quantized = tiles.by_rows}, y);
}

absl::Status LinearGroup::Forward(const Pass& pass, const bfloat16* x,
                                  std::initializer_list<LinearOutput> y) const {
  const TileOutputs tiles = InputTiles(pass, QuantizedTensor());
  RETURN_IF_ERROR(Quantize(pass, x, inputs(), tiles));
  return Multiply(pass, {.values = x, .quantized = tiles.by_rows}, y);
}

absl::Status LinearGroup::Multiply(const Pass& pass, const Linear::Input& x,
                                   std::initializer_list<LinearOutput> y) const {
  CHECK(y.size() == linears_.size());
  for (size_t i = 0; i < linears_.size(); ++i) {
    RETURN_IF_ERROR(linears_[i].Forward(pass, x, y.begin()[i]));
  }
  return absl::OkStatus();
}

Linear::Input LinearGroup::InputOf(const Pass& pass, const KeptInput& kept) const {
  return {.values = kept.values.data(), .quantized = kept.transposed.Tensor(inputs(), pass.tokens)};
}

absl::Status LinearGroup::Backward(const Pass& pass, std::initializer_list<const bfloat16*> dy,
                                   const KeptInput& kept, bfloat16* dx) const {
  return Backward(pass, dy, InputOf(pass, kept), dx);
}

absl::Status LinearGroup::Backward(const Pass& pass, std::initializer_list<const bfloat16*> dy,
                                   const bfloat16* x, bfloat16* dx) const {
  TileOutputs tiles = {};
  if (const Linear* const reader = First(pass, &LinearPolicy::wgrad, GemmPrecision::kFp8)) {
    tiles.by_columns = pass.workspace->input_tiles.Tensor(inputs(), pass.tokens);
    const bool counted = First(pass, &LinearPolicy::fprop, GemmPrecision::kFp8) != nullptr;
    if (!counted)
      tiles.nonfinite = pass.nonfinite->At(reader->module(), NonfiniteKind::kActivation);
  }
  RETURN_IF_ERROR(Quantize(pass, x, inputs(), tiles));
  return Backward(pass, dy, Linear::Input{.values = x, .quantized = tiles.by_columns}, dx);
}

absl::Status LinearGroup::Backward(const Pass& pass, std::initializer_list<const bfloat16*> dy,
                                   const Linear::Input& x, bfloat16* dx) const {
  CHECK(dy.size() == linears_.size());
  for (size_t i = 0; i < linears_.size(); ++i) {
    const Linear& linear = linears_[i];
    const bfloat16* const values = dy.begin()[i];
    const TileOutputs tiles = linear.GradientTiles(pass, pass.workspace->tiles);
    RETURN_IF_ERROR(Quantize(pass, values, linear.outputs(), tiles));
    RETURN_IF_ERROR(linear.Backward(pass, {values, tiles}, x, PartOf(pass, i, dx)));
  }
  return JoinParts(pass, dx);
}

absl::Status LinearGroup::Backward(const Pass& pass, const kernels::SwigluBackward& dy,
                                   const KeptInput& kept, bfloat16* dx) const {
  CHECK(linears_.size() == 2);
  const Linear& gate = linears_[0];
  const Linear& up = linears_[1];
  kernels::SwigluBackwardQuantize fused = {
      .swiglu = dy,
      .dgate_tiles = gate.GradientTiles(pass, pass.workspace->tiles),
      .dup_tiles = up.GradientTiles(pass, pass.workspace->up_tiles)};
  if (!gate.ReadsGradientValues(pass)) fused.swiglu.dgate = nullptr;
  if (!up.ReadsGradientValues(pass)) fused.swiglu.dup = nullptr;
  const bool any_tiles = fused.dgate_tiles.wanted() || fused.dup_tiles.wanted();
  RETURN_IF_ERROR(pass.backend->Run(any_tiles ? Operation(fused) : Operation(dy)));
  const Linear::Input x = InputOf(pass, kept);
  RETURN_IF_ERROR(
      gate.Backward(pass, {fused.swiglu.dgate, fused.dgate_tiles}, x, PartOf(pass, 0, dx)));
  RETURN_IF_ERROR(up.Backward(pass, {fused.swiglu.dup, fused.dup_tiles}, x, PartOf(pass, 1, dx)));
  return JoinParts(pass, dx);
}

Linear::InputGradient LinearGroup::PartOf(const Pass& pass, size_t i, bfloat16* dx) const {
  if (linears_.size() == 1)
    return {.values = dx, .type = ResultType::kBfloat16, .accumulate = false};
  return {.values = pass.workspace->input_gradient.data(),
          .type = ResultType::kFloat32,
          .accumulate = i > 0};
}

absl::Status LinearGroup::JoinParts(const Pass& pass, bfloat16* dx) const {
  if (linears_.size() == 1) return absl::OkStatus();
  return pass.backend->Run(kernels::CastToBfloat16{
      .x = pass.workspace->input_gradient.data(), .y = dx, .count = pass.tokens * inputs()});
}

}  // namespace octavo::engine
