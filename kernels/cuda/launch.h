// The one place where a kernel source learns whether nvcc or the host compiler reads it. A kernel
// is written in CUDA with four words of ours: OCTAVO_KERNEL, OCTAVO_SHARED, SyncThreads() and
// Launch(); everything else a warp does is in device/instructions.cuh.
#pragma once

#include <cstdint>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define OCTAVO_KERNEL __global__
#define OCTAVO_DEVICE __device__ __forceinline__
// A shared array of `count` (constant) elements.
#define OCTAVO_SHARED(type, name, count) __shared__ type name[count]

namespace octavo::kernels::cuda {

using Stream = cudaStream_t;
using Error = cudaError_t;
inline constexpr Error kSuccess = cudaSuccess;
inline constexpr Error kInvalidValue = cudaErrorInvalidValue;

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
};

__device__ __forceinline__ void SyncThreads() { __syncthreads(); }

template <typename... Parameters, typename... Arguments>
Error Launch(void (*kernel)(Parameters...), Extent grid, unsigned threads, Stream stream,
             Arguments... arguments) {
  kernel<<<dim3(grid.x, grid.y), threads, 0, stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace octavo::kernels::cuda

#else  // the host, through kernels/simt

#include "kernels/simt/simt.h"

#define OCTAVO_KERNEL
#define OCTAVO_DEVICE inline
#define OCTAVO_SHARED(type, name, count) \
  static const char name##_key = 0;      \
  type* const name =                     \
      static_cast<type*>(::octavo::simt::SharedMemory(&name##_key, sizeof(type) * (count)))

#define threadIdx (::octavo::simt::Current().thread)
#define blockIdx (::octavo::simt::Current().block)
#define blockDim (::octavo::simt::Current().block_size)
#define gridDim (::octavo::simt::Current().grid_size)

namespace octavo::kernels::cuda {

using Stream = void*;
enum class Error { kNone, kInvalidArgument, kFault };
inline constexpr Error kSuccess = Error::kNone;
inline constexpr Error kInvalidValue = Error::kInvalidArgument;

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
};

inline void SyncThreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  ::octavo::simt::Barrier({file, line});
}

template <typename... Parameters, typename... Arguments>
Error Launch(void (*kernel)(Parameters...), Extent grid, unsigned threads, Stream,
             Arguments... arguments) {
  const bool ok =
      ::octavo::simt::Run({grid.x, grid.y, 1}, {threads, 1, 1}, [&] { kernel(arguments...); });
  return ok ? Error::kNone : Error::kFault;
}

}  // namespace octavo::kernels::cuda

#endif
