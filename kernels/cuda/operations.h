// The operations that the CUDA backend has so far: one launcher each. Pointers are the device's (on
// the host build: ordinary ones). A shape that a kernel does not take is kInvalidValue; everything
// else that can fail is the launch itself.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/quantize.h"

namespace octavo::kernels::cuda {

[[nodiscard]] Error Enqueue(const QuantizeTiles& operation, Stream stream);
[[nodiscard]] Error Enqueue(const QuantizeBlocks& operation, Stream stream);
[[nodiscard]] Error Enqueue(const ReadQuantized& operation, Stream stream);
[[nodiscard]] Error Enqueue(const WriteQuantized& operation, Stream stream);
[[nodiscard]] Error Enqueue(const RmsNormForward& operation, Stream stream);
[[nodiscard]] Error Enqueue(const RmsNormBackward& operation, Stream stream);
[[nodiscard]] Error Enqueue(const GemmFp8& operation, Stream stream);

}  // namespace octavo::kernels::cuda
