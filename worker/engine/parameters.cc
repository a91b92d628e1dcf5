#include "worker/engine/parameters.h"

#include <utility>

#include "base/status.h"

namespace octavo::engine {
namespace {

absl::StatusOr<kernels::Buffer<float>> CreateZeroed(kernels::Backend* backend, int64_t count) {
  ASSIGN_OR_RETURN(kernels::Buffer<float> buffer, kernels::Buffer<float>::Create(backend, count));
  RETURN_IF_ERROR(
      backend->Run(kernels::FillZero{.memory = buffer.data(), .bytes = buffer.bytes()}));
  return buffer;
}

}  // namespace

absl::StatusOr<Parameters> Parameters::Create(const ParameterLayout& layout,
                                              kernels::Backend* backend) {
  Parameters parameters(layout);
  ASSIGN_OR_RETURN(parameters.master_, kernels::Buffer<float>::Create(backend, layout.elements));
  ASSIGN_OR_RETURN(parameters.gradient_, CreateZeroed(backend, layout.elements));
  ASSIGN_OR_RETURN(parameters.exp_avg_, CreateZeroed(backend, layout.elements));
  ASSIGN_OR_RETURN(parameters.exp_avg_sq_, CreateZeroed(backend, layout.elements));
  return parameters;
}

}  // namespace octavo::engine
