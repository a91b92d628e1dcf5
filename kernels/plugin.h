// The one entry point of a backend that lives in a shared library of its own.
#pragma once

#include <cstddef>

#include "kernels/backend.h"

namespace octavo::kernels {

// Raised whenever kernels/backend.h, operation.h or ops changes: program and plug-in share C++
// types.
inline constexpr int kPluginVersion = 5;

inline constexpr char kCudaPluginName[] = "liboctavo_cuda.so";
inline constexpr char kCudaPluginSymbol[] = "octavo_cuda_open";

// A new backend that the caller owns, or null: `error` then says why, cut to `error_bytes` with its
// final zero. A plug-in built for another version must refuse.
using PluginOpen = Backend* (*)(int version, const BackendOptions* options, char* error,
                                size_t error_bytes);

}  // namespace octavo::kernels
