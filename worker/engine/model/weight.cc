#include "worker/engine/model/weight.h"

#include "base/status.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Buffer;

namespace {

kernels::QuantizedSpec BlockSpec(int64_t rows, int64_t columns) {
  return {
      .rows = rows, .columns = columns, .tile = kernels::Tile::k128x128, .role = kernels::Role::kB};
}

}  // namespace

ParameterIndex::ParameterIndex(const ParameterLayout& layout) {
  for (const ParameterSpec& parameter : layout.parameters) by_name_[parameter.name] = parameter;
}

const ParameterSpec& ParameterIndex::Get(const std::string& name) const {
  const auto found = by_name_.find(name);
  CHECK(found != by_name_.end());
  return found->second;
}

absl::StatusOr<Bfloat16Weight> Bfloat16Weight::Create(const ParameterSpec& parameter,
                                                      kernels::Backend* backend) {
  Bfloat16Weight weight;
  weight.offset_ = parameter.offset;
  weight.module_ = parameter.module_index;
  ASSIGN_OR_RETURN(weight.values_, Buffer<bfloat16>::Create(backend, parameter.count()));
  return weight;
}

absl::Status Bfloat16Weight::Update(const float* master, const NonfiniteCounters& nonfinite,
                                    kernels::Backend* backend) {
  return backend->Run(
      kernels::CastToBfloat16{.x = master + offset_,
                              .y = values_.data(),
                              .count = values_.count(),
                              .nonfinite = nonfinite.At(module_, NonfiniteKind::kWeight)});
}

absl::StatusOr<LinearWeight> LinearWeight::Create(const ParameterSpec& parameter,
                                                  const LinearForms& forms,
                                                  kernels::Backend* backend) {
  LinearWeight weight;
  weight.module_ = parameter.module_index;
  weight.offset_ = parameter.offset;
  weight.rows_ = parameter.rows;
  weight.columns_ = parameter.columns;
  if (forms.bf16_weight) {
    ASSIGN_OR_RETURN(weight.bf16_, Buffer<bfloat16>::Create(backend, parameter.count()));
  }
  if (forms.fp8_weight) {
    ASSIGN_OR_RETURN(weight.fp8_, QuantizedBuffer::Create(
                                      BlockSpec(parameter.rows, parameter.columns), backend));
  }
  if (forms.fp8_transposed_weight) {
    ASSIGN_OR_RETURN(
        weight.fp8_transposed_,
        QuantizedBuffer::Create(BlockSpec(parameter.columns, parameter.rows), backend));
  }
  return weight;
}

absl::Status LinearWeight::Update(const float* master, const LinearPolicy& policy,
                                  const NonfiniteCounters& nonfinite, kernels::Backend* backend) {
  fresh_ = LinearForms();
  fresh_.Include(policy);
  fresh_.bf16_weight = fresh_.bf16_weight && bf16_.count() > 0;
  fresh_.fp8_weight = fresh_.fp8_weight && !fp8_.empty();
  fresh_.fp8_transposed_weight = fresh_.fp8_transposed_weight && !fp8_transposed_.empty();
  const bool fp8 = fresh_.fp8_weight || fresh_.fp8_transposed_weight;
  uint64_t* const count = nonfinite.At(module_, NonfiniteKind::kWeight);
  if (fp8) {
    RETURN_IF_ERROR(backend->Run(kernels::QuantizeBlocks{
        .x = master + offset_,
        .rows = rows_,
        .columns = columns_,
        .normal = fresh_.fp8_weight ? fp8_.Tensor() : kernels::QuantizedTensor(),
        .transposed =
            fresh_.fp8_transposed_weight ? fp8_transposed_.Tensor() : kernels::QuantizedTensor(),
        .nonfinite = count}));
  }
  if (!fresh_.bf16_weight) return absl::OkStatus();
  return backend->Run(kernels::CastToBfloat16{
      .x = master + offset_,
      .y = bf16_.data(),
      .count = bf16_.count(),
      .nonfinite = fp8 ? nullptr : count});  // a weight in both forms counts once
}

absl::StatusOr<const bfloat16*> LinearWeight::Bfloat16(const float* master, bfloat16* scratch,
                                                       kernels::Backend* backend) const {
  if (fresh_.bf16_weight) return bf16_.data();
  RETURN_IF_ERROR(backend->Run(
      kernels::CastToBfloat16{.x = master + offset_, .y = scratch, .count = rows_ * columns_}));
  return scratch;
}

absl::StatusOr<kernels::QuantizedTensor> LinearWeight::Quantized(const float* master,
                                                                 const QuantizedBuffer& scratch,
                                                                 kernels::Backend* backend) const {
  if (fresh_.fp8_weight) return fp8_.Tensor();
  const kernels::QuantizedTensor weight = scratch.Tensor(rows_, columns_);
  RETURN_IF_ERROR(backend->Run(kernels::QuantizeBlocks{.x = master + offset_,
                                                       .rows = rows_,
                                                       .columns = columns_,
                                                       .normal = weight,
                                                       .transposed = {},
                                                       .nonfinite = nullptr}));
  return weight;
}

kernels::QuantizedTensor LinearWeight::QuantizedTransposed() const {
  CHECK(fresh_.fp8_transposed_weight);
  return fp8_transposed_.Tensor();
}

}  // namespace octavo::engine
