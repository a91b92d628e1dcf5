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

kernels::RmsNormForward Norm::Forward(const Pass& pass, const ForwardArguments& arguments) const {
  return {.x = arguments.x,
          .weight = weight_.data(),
          .y = arguments.y,
          .inverse_rms = arguments.inverse_rms,
          .rows = arguments.rows,
          .columns = columns_,
          .epsilon = epsilon_,
          .nonfinite = arguments.inverse_rms == nullptr
                           ? nullptr
                           : pass.nonfinite->At(module_, NonfiniteKind::kNormRow)};
}

kernels::RmsNormBackward Norm::Backward(const Pass& pass,
                                        const BackwardArguments& arguments) const {
  return {.dy = arguments.dy,
          .x = arguments.x,
          .weight = weight_.data(),
          .inverse_rms = arguments.inverse_rms,
          .dx_add = arguments.dx_add,
          .dx = arguments.dx,
          .dweight = pass.gradient + weight_.offset(),
          .rows = arguments.rows,
          .columns = columns_};
}

}  // namespace octavo::engine
