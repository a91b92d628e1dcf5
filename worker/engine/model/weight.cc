#include "worker/engine/model/weight.h"

#include "base/status.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Buffer;

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
  ASSIGN_OR_RETURN(weight.values_, Buffer<bfloat16>::Create(backend, parameter.count()));
  return weight;
}

absl::Status Bfloat16Weight::Update(const float* master, kernels::Backend* backend) {
  return backend->Run(kernels::CastToBfloat16{
      .x = master + offset_, .y = values_.data(), .count = values_.count()});
}

absl::StatusOr<Fp8Weight> Fp8Weight::Create(const ParameterSpec& parameter, bool for_training,
                                            kernels::Backend* backend) {
  const int64_t scales = BlockScales(parameter.rows, parameter.columns);
  Fp8Weight weight;
  weight.offset_ = parameter.offset;
  weight.rows_ = parameter.rows;
  weight.columns_ = parameter.columns;
  ASSIGN_OR_RETURN(weight.codes_, Buffer<uint8_t>::Create(backend, parameter.count()));
  ASSIGN_OR_RETURN(weight.scale_inv_, Buffer<float>::Create(backend, scales));
  if (!for_training) return weight;
  ASSIGN_OR_RETURN(weight.transposed_codes_, Buffer<uint8_t>::Create(backend, parameter.count()));
  ASSIGN_OR_RETURN(weight.transposed_scale_inv_, Buffer<float>::Create(backend, scales));
  return weight;
}

absl::Status Fp8Weight::Update(const float* master, uint32_t* nonfinite,
                               kernels::Backend* backend) {
  return backend->Run(kernels::QuantizeBlocks{.x = master + offset_,
                                              .rows = rows_,
                                              .columns = columns_,
                                              .codes = codes_.data(),
                                              .scale_inv = scale_inv_.data(),
                                              .transposed_codes = transposed_codes_.data(),
                                              .transposed_scale_inv = transposed_scale_inv_.data(),
                                              .nonfinite = nonfinite});
}

kernels::Fp8Matrix Fp8Weight::normal() const {
  return {.codes = codes_.data(),
          .scale_inv = scale_inv_.data(),
          .rows = rows_,
          .columns = columns_,
          .granularity = kernels::Granularity::kBlock128x128};
}

kernels::Fp8Matrix Fp8Weight::transposed() const {
  return {.codes = transposed_codes_.data(),
          .scale_inv = transposed_scale_inv_.data(),
          .rows = columns_,
          .columns = rows_,
          .granularity = kernels::Granularity::kBlock128x128};
}

}  // namespace octavo::engine
