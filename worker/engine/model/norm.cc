#include "worker/engine/model/norm.h"

#include "base/status.h"

namespace octavo::engine {

absl::StatusOr<Norm> Norm::Create(const std::string& module, const ParameterIndex& parameters,
                                  double epsilon, kernels::Backend* backend) {
  const ParameterSpec& parameter = parameters.Get(module + ".weight");
  Norm norm;
  norm.columns_ = parameter.columns;
  norm.module_ = parameter.module_index;
  norm.epsilon_ = static_cast<float>(epsilon);
  ASSIGN_OR_RETURN(norm.weight_, Bfloat16Weight::Create(parameter, backend));
  return norm;
}

absl::Status Norm::Forward(const Pass& pass, const kernels::bfloat16* x, int64_t rows,
                           kernels::bfloat16* y, float* inverse_rms) const {
  uint64_t* const counter =
      inverse_rms == nullptr ? nullptr : pass.nonfinite->At(module_, NonfiniteKind::kNormRow);
  return pass.backend->Run(kernels::RmsNormForward{.x = x,
                                                   .weight = weight_.data(),
                                                   .y = y,
                                                   .inverse_rms = inverse_rms,
                                                   .rows = rows,
                                                   .columns = columns_,
                                                   .epsilon = epsilon_,
                                                   .nonfinite = counter});
}

absl::Status Norm::Backward(const Pass& pass, const BackwardArguments& arguments) const {
  return pass.backend->Run(kernels::RmsNormBackward{.dy = arguments.dy,
                                                    .x = arguments.x,
                                                    .weight = weight_.data(),
                                                    .inverse_rms = arguments.inverse_rms,
                                                    .dx_add = arguments.dx_add,
                                                    .dx = arguments.dx,
                                                    .dweight = pass.gradient + weight_.offset(),
                                                    .rows = arguments.rows,
                                                    .columns = columns_});
}

}  // namespace octavo::engine
