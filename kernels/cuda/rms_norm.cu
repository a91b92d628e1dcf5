// RMSNorm forward and backward (formulas: kernels/ops/norm.h). One block of 4 warps a row; the
// weight's gradient has a kernel of its own, a thread a column, so that rows are added in a fixed
// order.
#include <cmath>

#include "kernels/cuda/device/instructions.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/numerics/bfloat16.h"

namespace octavo::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;
constexpr unsigned kThreads = kWarps * kWarpSize;

// The block's sum, given to every thread. `of_warps` holds kWarps elements and may be reused after
// the next barrier.
OCTAVO_DEVICE float BlockSum(float x, float* of_warps) {
  x = WarpSum(x);
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = x;
  SyncThreads();
  float sum = 0;
  for (unsigned warp = 0; warp < kWarps; ++warp) sum += of_warps[warp];
  return sum;
}

OCTAVO_KERNEL void RmsNormForwardKernel(RmsNormForward op) {
  OCTAVO_SHARED(float, of_warps, kWarps);
  const bfloat16* x = op.x + int64_t{blockIdx.x} * op.columns;
  bfloat16* y = op.y + int64_t{blockIdx.x} * op.columns;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < op.columns; c += kThreads)
    squares += ToFloat(x[c]) * ToFloat(x[c]);
  const float mean = BlockSum(squares, of_warps) / static_cast<float>(op.columns);
  const float inverse_rms = 1.0f / sqrtf(mean + op.epsilon);
  for (int64_t c = threadIdx.x; c < op.columns; c += kThreads) {
    const float normalised = ToFloat(ToBfloat16(ToFloat(x[c]) * inverse_rms));
    y[c] = ToBfloat16(normalised * ToFloat(op.weight[c]));
  }
  if (threadIdx.x != 0) return;
  if (op.inverse_rms != nullptr) op.inverse_rms[blockIdx.x] = inverse_rms;
  const bool usable = inverse_rms > 0.0f && inverse_rms < INFINITY;
  if (op.nonfinite != nullptr && !usable) AtomicAdd(op.nonfinite, 1);
}

OCTAVO_KERNEL void RmsNormBackwardKernel(RmsNormBackward op) {
  OCTAVO_SHARED(float, of_warps, kWarps);
  const int64_t row = int64_t{blockIdx.x} * op.columns;
  const float r = op.inverse_rms[blockIdx.x];
  float products = 0;
  for (int64_t c = threadIdx.x; c < op.columns; c += kThreads) {
    products += ToFloat(op.dy[row + c]) * ToFloat(op.weight[c]) * ToFloat(op.x[row + c]);
  }
  const float mean = BlockSum(products, of_warps) / static_cast<float>(op.columns);
  for (int64_t c = threadIdx.x; c < op.columns; c += kThreads) {
    const float g = ToFloat(op.dy[row + c]) * ToFloat(op.weight[c]);
    const float add = op.dx_add == nullptr ? 0.0f : ToFloat(op.dx_add[row + c]);
    op.dx[row + c] = ToBfloat16(r * (g - ToFloat(op.x[row + c]) * r * r * mean) + add);
  }
}

OCTAVO_KERNEL void RmsNormWeightGradientKernel(RmsNormBackward op) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= op.columns) return;
  float sum = 0;
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t at = row * op.columns + c;
    sum += ToFloat(op.dy[at]) * ToFloat(op.x[at]) * op.inverse_rms[row];
  }
  op.dweight[c] += sum;
}

bool IsValid(int64_t rows, int64_t columns) {
  return rows >= 1 && rows < (int64_t{1} << 31) && columns >= 1 && columns < (int64_t{1} << 31);
}

}  // namespace

Error Enqueue(const RmsNormForward& operation, Stream stream) {
  if (!IsValid(operation.rows, operation.columns)) return kInvalidValue;
  return Launch(RmsNormForwardKernel, {static_cast<unsigned>(operation.rows), 1}, kThreads, stream,
                operation);
}

// The weight's gradient first: dx may overwrite what it reads only if dx is dx_add, which it does
// not read.
Error Enqueue(const RmsNormBackward& operation, Stream stream) {
  if (!IsValid(operation.rows, operation.columns)) return kInvalidValue;
  const unsigned blocks = static_cast<unsigned>((operation.columns + kThreads - 1) / kThreads);
  const Error error = Launch(RmsNormWeightGradientKernel, {blocks, 1}, kThreads, stream, operation);
  if (error != kSuccess) return error;
  return Launch(RmsNormBackwardKernel, {static_cast<unsigned>(operation.rows), 1}, kThreads, stream,
                operation);
}

}  // namespace octavo::kernels::cuda
