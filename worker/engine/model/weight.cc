#include "worker/engine/model/weight.h"

#include <utility>

#include "base/status.h"

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

absl::StatusOr<Fp8Weight> Fp8Weight::Create(const ParameterSpec& parameter, bool for_training,
                                            kernels::Backend* backend) {
  Fp8Weight weight;
  weight.offset_ = parameter.offset;
  weight.module_ = parameter.module_index;
  kernels::QuantizedSpec spec = {.rows = parameter.rows,
                                 .columns = parameter.columns,
                                 .tile = kernels::Tile::k128x128,
                                 .role = kernels::Role::kB};
  ASSIGN_OR_RETURN(weight.normal_, QuantizedBuffer::Create(spec, backend));
  if (!for_training) return weight;
  std::swap(spec.rows, spec.columns);
  ASSIGN_OR_RETURN(weight.transposed_, QuantizedBuffer::Create(spec, backend));
  return weight;
}

absl::Status Fp8Weight::Update(const float* master, const NonfiniteCounters& nonfinite,
                               kernels::Backend* backend) {
  return backend->Run(
      kernels::QuantizeBlocks{.x = master + offset_,
                              .rows = normal().spec.rows,
                              .columns = normal().spec.columns,
                              .normal = normal(),
                              .transposed = transposed(),
                              .nonfinite = nonfinite.At(module_, NonfiniteKind::kWeight)});
}

}  // namespace octavo::engine
