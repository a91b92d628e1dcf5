// BF16 and FP32 to E4M3 (formulas: kernels/ops/quantize.h). A block of 8 warps owns a 128 x 128
// patch of x in shared memory, so x is read from memory once however many copies are wanted.
#include "kernels/cuda/device/instructions.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/e4m3.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cuda {
namespace {

constexpr int kPatch = static_cast<int>(kScaleTile);
constexpr int kPitch = kPatch + 2;  // a column walk then meets every bank
constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarpSize;
constexpr int kValuesPerLane = kPatch / static_cast<int>(kWarpSize);

OCTAVO_DEVICE int Min(int64_t a, int b) { return a < b ? static_cast<int>(a) : b; }

// Quantises one tile of `count` <= 128 elements that lie `stride` apart in shared memory; the whole
// warp takes part.
OCTAVO_DEVICE void QuantizeTile(const bfloat16* tile, int stride, int count, uint8_t* codes,
                                float* scale_inv) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  float values[kValuesPerLane];
  TileStatistics mine;
  for (int i = 0; i < kValuesPerLane; ++i) {
    const int index = lane + i * static_cast<int>(kWarpSize);
    values[i] = index < count ? ToFloat(tile[index * stride]) : 0.0f;
    mine.Add(values[i]);
  }
  const float amax = WarpMax(mine.amax);
  const int exponent = ScaleExponent(amax);
  const float scale = PowerOfTwo(exponent);
  for (int i = 0; i < kValuesPerLane; ++i) {
    const int index = lane + i * static_cast<int>(kWarpSize);
    if (index < count) codes[index] = FloatToE4m3(values[i] * scale);
  }
  if (lane == 0) *scale_inv = PowerOfTwo(-exponent);
}

OCTAVO_DEVICE uint32_t LoadPatch(const QuantizeTiles& op, int64_t row0, int64_t column0, int rows,
                                 int columns, bfloat16* patch) {
  uint32_t nonfinite = 0;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kPatch; i += static_cast<int>(kThreads)) {
    const int row = i / kPatch;
    const int column = i % kPatch;
    if (column >= columns) continue;
    const bfloat16 x = op.x[(row0 + row) * op.columns + column0 + column];
    nonfinite += IsFinite(x) ? 0u : 1u;
    patch[row * kPitch + column] = x;
  }
  return nonfinite;
}

OCTAVO_KERNEL void QuantizeTilesKernel(QuantizeTiles op) {
  OCTAVO_SHARED(bfloat16, patch, kPatch * kPitch);
  const int64_t row0 = int64_t{blockIdx.y} * kPatch;
  const int64_t column0 = int64_t{blockIdx.x} * kPatch;
  const int rows = Min(op.rows - row0, kPatch);
  const int columns = Min(op.columns - column0, kPatch);
  const uint32_t nonfinite = WarpSum(LoadPatch(op, row0, column0, rows, columns, patch));
  if (op.nonfinite != nullptr && nonfinite > 0 && threadIdx.x % kWarpSize == 0)
    AtomicAdd(op.nonfinite, nonfinite);
  SyncThreads();

  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  if (op.row_codes != nullptr) {
    const int64_t tiles = TileCount(op.columns);
    for (int row = warp; row < rows; row += static_cast<int>(kWarps)) {
      QuantizeTile(patch + row * kPitch, 1, columns,
                   op.row_codes + (row0 + row) * op.columns + column0,
                   op.row_scale_inv + (row0 + row) * tiles + blockIdx.x);
    }
  }
  if (op.column_codes != nullptr) {
    const int64_t tiles = TileCount(op.rows);
    for (int column = warp; column < columns; column += static_cast<int>(kWarps)) {
      QuantizeTile(patch + column, kPitch, rows,
                   op.column_codes + (column0 + column) * op.rows + row0,
                   op.column_scale_inv + (column0 + column) * tiles + blockIdx.y);
    }
  }
}

// The block's largest value, given to every thread.
OCTAVO_DEVICE float BlockMax(float x, float* of_warps) {
  x = WarpMax(x);
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = x;
  SyncThreads();
  float result = of_warps[0];
  for (unsigned warp = 1; warp < kWarps; ++warp)
    result = of_warps[warp] > result ? of_warps[warp] : result;
  return result;
}

OCTAVO_KERNEL void QuantizeBlocksKernel(QuantizeBlocks op) {
  OCTAVO_SHARED(float, of_warps, kWarps);
  OCTAVO_SHARED(uint8_t, patch, kPatch * (kPatch + 4));
  const int64_t row0 = int64_t{blockIdx.y} * kPatch;
  const int64_t column0 = int64_t{blockIdx.x} * kPatch;
  const int rows = Min(op.rows - row0, kPatch);
  const int columns = Min(op.columns - column0, kPatch);

  TileStatistics mine;
  uint32_t nonfinite = 0;
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += static_cast<int>(kThreads)) {
    const bfloat16 x = ToBfloat16(op.x[(row0 + i / columns) * op.columns + column0 + i % columns]);
    nonfinite += IsFinite(x) ? 0u : 1u;
    mine.Add(ToFloat(x));
  }
  nonfinite = WarpSum(nonfinite);
  if (op.nonfinite != nullptr && nonfinite > 0 && threadIdx.x % kWarpSize == 0)
    AtomicAdd(op.nonfinite, nonfinite);

  const int exponent = ScaleExponent(BlockMax(mine.amax, of_warps));
  const float scale = PowerOfTwo(exponent);
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += static_cast<int>(kThreads)) {
    const int64_t at = (row0 + i / columns) * op.columns + column0 + i % columns;
    const uint8_t code = FloatToE4m3(ToFloat(ToBfloat16(op.x[at])) * scale);
    op.codes[at] = code;
    patch[(i / columns) * (kPatch + 4) + i % columns] = code;
  }
  SyncThreads();

  const int64_t row_blocks = TileCount(op.rows);
  const int64_t column_blocks = TileCount(op.columns);
  if (threadIdx.x == 0)
    op.scale_inv[blockIdx.y * column_blocks + blockIdx.x] = PowerOfTwo(-exponent);
  if (op.transposed_codes == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += static_cast<int>(kThreads)) {
    op.transposed_codes[(column0 + i / rows) * op.rows + row0 + i % rows] =
        patch[(i % rows) * (kPatch + 4) + i / rows];
  }
  if (threadIdx.x == 0)
    op.transposed_scale_inv[blockIdx.x * row_blocks + blockIdx.y] = PowerOfTwo(-exponent);
}

// Blocks across columns and down rows; CUDA allows 65535 down.
bool PatchGrid(int64_t rows, int64_t columns, Extent* grid) {
  const int64_t down = TileCount(rows);
  if (rows < 1 || columns < 1 || down > 65535 || columns > (int64_t{1} << 31)) return false;
  *grid = {static_cast<unsigned>(TileCount(columns)), static_cast<unsigned>(down)};
  return true;
}

}  // namespace

Error Enqueue(const QuantizeTiles& operation, Stream stream) {
  Extent grid;
  if (!PatchGrid(operation.rows, operation.columns, &grid)) return kInvalidValue;
  return Launch(QuantizeTilesKernel, grid, kThreads, stream, operation);
}

Error Enqueue(const QuantizeBlocks& operation, Stream stream) {
  Extent grid;
  if (!PatchGrid(operation.rows, operation.columns, &grid)) return kInvalidValue;
  return Launch(QuantizeBlocksKernel, grid, kThreads, stream, operation);
}

}  // namespace octavo::kernels::cuda
