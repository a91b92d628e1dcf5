// Backend::Reserve's memory without a backend.
#pragma once

#include <string_view>

#include "kernels/cpu/workspace.h"

namespace octavo::kernels {

// The backend by OpenBackend's name. The CUDA backend keeps nothing for itself.
inline int64_t WorkspaceBytes(std::string_view backend, const LargestOperations& largest,
                              const Machine& machine) {
  return backend == "cuda" ? 0 : cpu::ScratchSizesOf(largest, machine).total();
}

}  // namespace octavo::kernels
