// BF16 and FP32 to 8-bit numbers (formulas: kernels/ops/quantize.h; where they go:
// quantized_layout.h). A block of 8 warps owns a 128 x 128 patch of x in shared memory, so x is
// read from memory once however many copies are wanted.
#include "kernels/cuda/device/instructions.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantized_layout.h"
#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/element.h"
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

// A tile of up to 128 elements in shared memory and where its codes go.
struct TilePlace {
  const bfloat16* x;  // [count], `stride` apart
  int stride;
  int count;         // 0: a row of padding
  int padded_count;  // codes from `count` on are 0
  uint8_t* codes;
  float* scale_inv;
};

// Quantises one tile; the whole warp takes part.
OCTAVO_DEVICE void QuantizeTile(Element element, const TilePlace& tile) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  float values[kValuesPerLane];
  TileStatistics mine;
  for (int i = 0; i < kValuesPerLane; ++i) {
    const int index = lane + i * static_cast<int>(kWarpSize);
    values[i] = index < tile.count ? ToFloat(tile.x[index * tile.stride]) : 0.0f;
    mine.Add(values[i]);
  }
  const float amax = WarpMax(mine.amax);
  const int exponent = ScaleExponent(amax, element);
  const float scale = PowerOfTwo(exponent);
  for (int i = 0; i < kValuesPerLane; ++i) {
    const int index = lane + i * static_cast<int>(kWarpSize);
    if (index < tile.padded_count) tile.codes[index] = FloatToCode(element, values[i] * scale);
  }
  if (lane == 0) *tile.scale_inv = PowerOfTwo(-exponent);
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
  if (op.tiles.nonfinite != nullptr && nonfinite > 0 && threadIdx.x % kWarpSize == 0)
    AtomicAdd(op.tiles.nonfinite, nonfinite);
  SyncThreads();

  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  const QuantizedLayout by_rows = LayoutOf(op.tiles.by_rows);
  const QuantizedLayout by_columns = LayoutOf(op.tiles.by_columns);
  const int padded_rows = Min(RoundUp(op.rows, 16) - row0, kPatch);
  const int padded_columns = Min(RoundUp(op.columns, 16) - column0, kPatch);
  if (by_rows.codes != nullptr) {
    for (int row = warp; row < padded_rows; row += static_cast<int>(kWarps)) {
      QuantizeTile(by_rows.element,
                   {.x = patch + row * kPitch,
                    .stride = 1,
                    .count = row < rows ? columns : 0,
                    .padded_count = padded_columns,
                    .codes = by_rows.codes + by_rows.CodeAt(row0 + row, column0),
                    .scale_inv = by_rows.scale_inv + by_rows.ScaleAt(row0 + row, blockIdx.x)});
    }
  }
  if (by_columns.codes != nullptr) {
    for (int column = warp; column < padded_columns; column += static_cast<int>(kWarps)) {
      QuantizeTile(
          by_columns.element,
          {.x = patch + column,
           .stride = kPitch,
           .count = column < columns ? rows : 0,
           .padded_count = padded_rows,
           .codes = by_columns.codes + by_columns.CodeAt(column0 + column, row0),
           .scale_inv = by_columns.scale_inv + by_columns.ScaleAt(column0 + column, blockIdx.y)});
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

// The patch's codes, or their transpose, and zeros to the padded edge. The patch has a pitch of
// kCodePitch.
constexpr int kCodePitch = kPatch + 4;

struct PatchPlace {
  int64_t row;
  int64_t column;
  int rows;  // inside the matrix
  int columns;
  int row_stride;  // in the patch: kCodePitch, or 1 of the transpose
  int column_stride;
};

OCTAVO_DEVICE void StorePatch(const QuantizedLayout& to, const uint8_t* codes,
                              const PatchPlace& place) {
  const int padded_rows = Min(to.padded_rows - place.row, kPatch);
  const int padded_columns = Min(to.padded_columns - place.column, kPatch);
  for (int i = static_cast<int>(threadIdx.x); i < padded_rows * padded_columns;
       i += static_cast<int>(kThreads)) {
    const int row = i / padded_columns;
    const int column = i % padded_columns;
    const bool inside = row < place.rows && column < place.columns;
    to.codes[to.CodeAt(place.row + row, place.column + column)] =
        inside ? codes[row * place.row_stride + column * place.column_stride] : uint8_t{0};
  }
}

// The block's scale; the last block of a row also fills the padding.
OCTAVO_DEVICE void StoreBlockScale(const QuantizedLayout& to, int64_t row, int64_t tile,
                                   float scale_inv) {
  if (threadIdx.x != 0) return;
  to.scale_inv[to.ScaleAt(row, tile)] = scale_inv;
  if (tile + 1 != TileCount(to.columns)) return;
  for (int64_t pad = tile + 1; pad < to.block_stride; ++pad)
    to.scale_inv[to.ScaleAt(row, pad)] = 1.0f;
}

OCTAVO_KERNEL void QuantizeBlocksKernel(QuantizeBlocks op) {
  OCTAVO_SHARED(float, of_warps, kWarps);
  OCTAVO_SHARED(uint8_t, patch, kPatch * kCodePitch);
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

  const QuantizedLayout normal = LayoutOf(op.normal);
  const QuantizedLayout transposed = LayoutOf(op.transposed);
  const Element element = normal.codes != nullptr ? normal.element : transposed.element;
  const int exponent = ScaleExponent(BlockMax(mine.amax, of_warps), element);
  const float scale = PowerOfTwo(exponent);
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += static_cast<int>(kThreads)) {
    const int64_t at = (row0 + i / columns) * op.columns + column0 + i % columns;
    patch[(i / columns) * kCodePitch + i % columns] =
        FloatToCode(element, ToFloat(ToBfloat16(op.x[at])) * scale);
  }
  SyncThreads();

  if (normal.codes != nullptr) {
    StorePatch(normal, patch, {row0, column0, rows, columns, kCodePitch, 1});
    StoreBlockScale(normal, row0, blockIdx.x, PowerOfTwo(-exponent));
  }
  if (transposed.codes == nullptr) return;
  StorePatch(transposed, patch, {column0, row0, columns, rows, 1, kCodePitch});
  StoreBlockScale(transposed, column0, blockIdx.y, PowerOfTwo(-exponent));
}

// Elements of plain codes and of plain scales, one after another, over a grid of any size.
constexpr unsigned kCopyBlocks = 1024;

OCTAVO_KERNEL void ReadQuantizedKernel(ReadQuantized op) {
  const QuantizedLayout from = LayoutOf(op.tensor);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < from.rows * from.columns; i += stride)
    op.codes[i] = from.codes[from.CodeAt(i / from.columns, i % from.columns)];
  const int64_t across = op.tensor.spec.scale_columns();
  const int64_t line = from.tile == Tile::k128x128 ? kScaleTile : 1;
  for (int64_t i = first; i < op.tensor.spec.scales(); i += stride)
    op.scale_inv[i] = from.scale_inv[from.ScaleAt(i / across * line, i % across)];
}

OCTAVO_KERNEL void WriteQuantizedKernel(WriteQuantized op) {
  const QuantizedLayout to = LayoutOf(op.tensor);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < to.padded_rows * to.padded_columns; i += stride) {
    const int64_t row = i / to.padded_columns;
    const int64_t column = i % to.padded_columns;
    const bool inside = row < to.rows && column < to.columns;
    to.codes[i] = inside ? op.codes[row * to.columns + column] : uint8_t{0};
  }
  const bool blocks = to.tile == Tile::k128x128;
  const int64_t across = op.tensor.spec.scale_columns();
  const int64_t scale_rows = blocks ? op.tensor.spec.scale_rows() : to.padded_rows;
  const int64_t scale_columns = blocks ? to.block_stride : across;
  for (int64_t i = first; i < scale_rows * scale_columns; i += stride) {
    const int64_t row = i / scale_columns;
    const int64_t column = i % scale_columns;
    const bool inside = row < op.tensor.spec.scale_rows() && column < across;
    to.scale_inv[to.ScaleAt(blocks ? row * kScaleTile : row, column)] =
        inside ? op.scale_inv[row * across + column] : 1.0f;
  }
}

// Blocks across columns and down rows; CUDA allows 65535 down.
bool PatchGrid(int64_t rows, int64_t columns, Extent* grid) {
  const int64_t down = TileCount(rows);
  if (rows < 1 || columns < 1 || down > 65535 || columns > (int64_t{1} << 31)) return false;
  *grid = {static_cast<unsigned>(TileCount(columns)), static_cast<unsigned>(down)};
  return true;
}

// Blocks for so many elements.
Extent CopyGrid(int64_t elements) {
  const int64_t blocks = CeilDiv(elements, kThreads);
  return {static_cast<unsigned>(blocks < kCopyBlocks ? blocks : kCopyBlocks)};
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

Error Enqueue(const ReadQuantized& operation, Stream stream) {
  const QuantizedSpec& spec = operation.tensor.spec;
  if (spec.rows < 1 || spec.columns < 1) return kInvalidValue;
  return Launch(ReadQuantizedKernel, CopyGrid(spec.rows * spec.columns), kThreads, stream,
                operation);
}

Error Enqueue(const WriteQuantized& operation, Stream stream) {
  const QuantizedSpec& spec = operation.tensor.spec;
  if (spec.rows < 1 || spec.columns < 1) return kInvalidValue;
  return Launch(WriteQuantizedKernel, CopyGrid(spec.rows * spec.columns), kThreads, stream,
                operation);
}

}  // namespace octavo::kernels::cuda
