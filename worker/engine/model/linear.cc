#include "worker/engine/model/linear.h"

#include <utility>

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Layout;
using kernels::QuantizedTensor;
using kernels::ResultType;

namespace {

bool IsFp8(GemmPrecision precision) { return precision == GemmPrecision::kFp8; }

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

absl::Status Linear::Forward(const Pass& pass, const Input& x, bfloat16* y) const {
  if (IsFp8(policy(pass).fprop)) {
    ASSIGN_OR_RETURN(const QuantizedTensor weight,
                     weight_.Quantized(pass.master, pass.workspace->weight_codes, pass.backend));
    return pass.backend->Run(kernels::GemmFp8{.a = x.quantized,
                                              .b = weight,
                                              .bias = bias(),
                                              .c = y,
                                              .c_type = ResultType::kBfloat16,
                                              .accumulate = false});
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
                                             .c = y,
                                             .c_type = ResultType::kBfloat16,
                                             .accumulate = false});
}

absl::Status Linear::Backward(const Pass& pass, const bfloat16* dy, const Input& x,
                              const InputGradient& dx) const {
  if (bias_) {
    RETURN_IF_ERROR(pass.backend->Run(kernels::ColumnSum{.x = dy,
                                                         .out = pass.gradient + bias_->offset(),
                                                         .rows = pass.tokens,
                                                         .columns = outputs()}));
  }
  const LinearPolicy policy = this->policy(pass);
  const Workspace& workspace = *pass.workspace;
  Input by_rows = {.values = dy, .quantized = {}};
  Input by_columns = {.values = dy, .quantized = {}};
  if (IsFp8(policy.dgrad)) by_rows.quantized = workspace.row_tiles.Tensor(pass.tokens, outputs());
  if (IsFp8(policy.wgrad))
    by_columns.quantized = workspace.gradient_tiles.Tensor(outputs(), pass.tokens);
  by_rows.quantized.spec.element = policy.gradient;
  by_columns.quantized.spec.element = policy.gradient;
  if (IsFp8(policy.dgrad) || IsFp8(policy.wgrad)) {
    RETURN_IF_ERROR(pass.backend->Run(kernels::QuantizeTiles{
        .x = dy,
        .rows = pass.tokens,
        .columns = outputs(),
        .by_rows = by_rows.quantized,
        .by_columns = by_columns.quantized,
        .nonfinite = pass.nonfinite->At(module(), NonfiniteKind::kOutputGradient)}));
  }
  RETURN_IF_ERROR(InputGradientProduct(pass, by_rows, dx));
  return WeightGradientProduct(pass, by_columns, x);
}

absl::Status Linear::InputGradientProduct(const Pass& pass, const Input& dy,
                                          const InputGradient& dx) const {
  if (IsFp8(policy(pass).dgrad)) {
    return pass.backend->Run(kernels::GemmFp8{.a = dy.quantized,
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

absl::Status Linear::WeightGradientProduct(const Pass& pass, const Input& dy,
                                           const Input& x) const {
  float* const gradient = pass.gradient + weight_.offset();
  if (IsFp8(policy(pass).wgrad)) {
    return pass.backend->Run(kernels::GemmFp8{.a = dy.quantized,
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

const Linear* LinearGroup::FirstFp8(const Pass& pass, GemmPrecision LinearPolicy::*gemm) const {
  for (const Linear& linear : linears_) {
    if (IsFp8(linear.policy(pass).*gemm)) return &linear;
  }
  return nullptr;
}

absl::Status LinearGroup::Forward(const Pass& pass, const ProducedInput& x, const KeptInput& kept,
                                  std::initializer_list<bfloat16*> y) const {
  bfloat16* const values = pass.train && kept.values.count() > 0 ? kept.values.data() : x.scratch;
  RETURN_IF_ERROR(x.write(values));
  const bool keep = pass.train && FirstFp8(pass, &LinearPolicy::wgrad) != nullptr;
  return Forward(pass, values,
                 keep ? kept.transposed.Tensor(inputs(), pass.tokens) : QuantizedTensor(), y);
}

absl::Status LinearGroup::Forward(const Pass& pass, const bfloat16* x,
                                  std::initializer_list<bfloat16*> y) const {
  return Forward(pass, x, QuantizedTensor(), y);
}

absl::Status LinearGroup::Forward(const Pass& pass, const bfloat16* x,
                                  const QuantizedTensor& transposed,
                                  std::initializer_list<bfloat16*> y) const {
  const Linear* reader = FirstFp8(pass, &LinearPolicy::fprop);
  Linear::Input input = {.values = x, .quantized = {}};
  if (reader != nullptr) input.quantized = pass.workspace->row_tiles.Tensor(pass.tokens, inputs());
  if (reader == nullptr && transposed.data != nullptr)
    reader = FirstFp8(pass, &LinearPolicy::wgrad);
  if (reader != nullptr) {
    RETURN_IF_ERROR(pass.backend->Run(kernels::QuantizeTiles{
        .x = x,
        .rows = pass.tokens,
        .columns = inputs(),
        .by_rows = input.quantized,
        .by_columns = transposed,
        .nonfinite = pass.nonfinite->At(reader->module(), NonfiniteKind::kActivation)}));
  }
  CHECK(y.size() == linears_.size());
  for (size_t i = 0; i < linears_.size(); ++i) {
    RETURN_IF_ERROR(linears_[i].Forward(pass, input, y.begin()[i]));
  }
  return absl::OkStatus();
}

absl::Status LinearGroup::Backward(const Pass& pass, std::initializer_list<const bfloat16*> dy,
                                   const KeptInput& kept, bfloat16* dx) const {
  return Backward(pass, dy,
                  Linear::Input{.values = kept.values.data(),
                                .quantized = kept.transposed.Tensor(inputs(), pass.tokens)},
                  dx);
}

absl::Status LinearGroup::Backward(const Pass& pass, std::initializer_list<const bfloat16*> dy,
                                   const bfloat16* x, bfloat16* dx) const {
  Linear::Input input = {.values = x, .quantized = {}};
  if (const Linear* const reader = FirstFp8(pass, &LinearPolicy::wgrad); reader != nullptr) {
    input.quantized = pass.workspace->input_tiles.Tensor(inputs(), pass.tokens);
    const bool counted = FirstFp8(pass, &LinearPolicy::fprop) != nullptr;  // in forward
    RETURN_IF_ERROR(pass.backend->Run(kernels::QuantizeTiles{
        .x = x,
        .rows = pass.tokens,
        .columns = inputs(),
        .by_rows = {},
        .by_columns = input.quantized,
        .nonfinite =
            counted ? nullptr : pass.nonfinite->At(reader->module(), NonfiniteKind::kActivation)}));
  }
  return Backward(pass, dy, input, dx);
}

absl::Status LinearGroup::Backward(const Pass& pass, std::initializer_list<const bfloat16*> dy,
                                   const Linear::Input& x, bfloat16* dx) const {
  CHECK(dy.size() == linears_.size());
  if (linears_.size() == 1) {
    return linears_[0].Backward(pass, *dy.begin(), x,
                                {.values = dx, .type = ResultType::kBfloat16, .accumulate = false});
  }
  float* const sum = pass.workspace->input_gradient.data();
  for (size_t i = 0; i < linears_.size(); ++i) {
    RETURN_IF_ERROR(
        linears_[i].Backward(pass, dy.begin()[i], x,
                             {.values = sum, .type = ResultType::kFloat32, .accumulate = i > 0}));
  }
  return pass.backend->Run(
      kernels::CastToBfloat16{.x = sum, .y = dx, .count = pass.tokens * inputs()});
}

}  // namespace octavo::engine
