// Backend::QuantizedBytes without a backend, for memory estimates of machines that are elsewhere.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu/quantized_layout.h"
#include "kernels/cuda/quantized_layout.h"

namespace octavo::kernels {

// The backend by OpenBackend's name: "cuda", else "cpu".
inline int64_t QuantizedBytes(std::string_view backend, const QuantizedSpec& spec) {
  return backend == "cuda" ? cuda::QuantizedBytes(spec) : cpu::QuantizedBytes(spec);
}

}  // namespace octavo::kernels
