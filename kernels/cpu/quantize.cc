// Formulas: kernels/ops/quantize.h. patch.h has the vector code.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/patches.h"
#include "kernels/cpu/quantized_layout.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"

namespace octavo::kernels::cpu {
namespace {

// The inside of a patch's codes to its place in a matrix whose rows are `pitch` bytes long.
void StoreCodes(const Codes& codes, int rows, int columns, uint8_t* to, int64_t pitch) {
  for (int row = 0; row < rows; ++row)
    std::memcpy(to + row * pitch, codes.code[row], static_cast<size_t>(columns));
}

// The scales of tiles with these amax; the inverse of the first `count` goes to every `stride`-th
// element of `scale_inv`.
void ChooseScales(Element element, const float* amax, int count, float* scales, float* scale_inv,
                  int64_t stride) {
  for (int i = 0; i < kSide; ++i) {
    const int exponent = ScaleExponent(amax[i], element);
    scales[i] = PowerOfTwo(exponent);
    if (i < count) scale_inv[i * stride] = PowerOfTwo(-exponent);
  }
}

// Adds the number of NaN and Inf to a counter that other threads add to.
void AddNonfinite(const Patch& patch, uint64_t* counter) {
  if (counter == nullptr) return;
  const uint32_t count = CountNonfinite(patch);
  if (count > 0) std::atomic_ref(*counter).fetch_add(count, std::memory_order_relaxed);
}

struct Workspace {
  Codes codes;
  Codes transposed;
  alignas(64) float amax[kSide];
  alignas(64) float scale[kSide];
};

void QuantizeRows(const Patch& patch, const Place& place, const Fp8Matrix& to, Workspace* work) {
  const int64_t tiles = TileCount(to.columns);
  LargestOfTiles(Way::kRows, patch, work->amax);
  ChooseScales(to.element, work->amax, place.rows, work->scale,
               to.scale_inv + place.row * tiles + place.column / kScaleTile, tiles);
  Encode(to.element, Way::kRows, patch, work->scale, &work->codes);
  StoreCodes(work->codes, place.rows, place.columns,
             to.codes + place.row * to.columns + place.column, to.columns);
}

// `to` is x^T.
void QuantizeColumns(const Patch& patch, const Place& place, const Fp8Matrix& to, Workspace* work) {
  const int64_t tiles = TileCount(to.columns);
  LargestOfTiles(Way::kColumns, patch, work->amax);
  ChooseScales(to.element, work->amax, place.columns, work->scale,
               to.scale_inv + place.column * tiles + place.row / kScaleTile, tiles);
  Encode(to.element, Way::kColumns, patch, work->scale, &work->codes);
  Transpose(work->codes, &work->transposed);
  StoreCodes(work->transposed, place.columns, place.rows,
             to.codes + place.column * to.columns + place.row, to.columns);
}

struct BlockOutputs {
  Fp8Matrix normal;
  Fp8Matrix transposed;
};

void QuantizeBlock(const Patch& patch, const Place& place, const BlockOutputs& to,
                   Workspace* work) {
  const auto& [normal, transposed] = to;
  const int64_t block_row = place.row / kScaleTile;
  const int64_t block_column = place.column / kScaleTile;
  const Element element = normal.codes != nullptr ? normal.element : transposed.element;
  const int exponent = ScaleExponent(LargestOf(patch), element);
  std::fill_n(work->scale, kSide, PowerOfTwo(exponent));
  Encode(element, Way::kRows, patch, work->scale, &work->codes);
  if (normal.codes != nullptr) {
    StoreCodes(work->codes, place.rows, place.columns,
               normal.codes + place.row * normal.columns + place.column, normal.columns);
    normal.scale_inv[block_row * TileCount(normal.columns) + block_column] = PowerOfTwo(-exponent);
  }
  if (transposed.codes == nullptr) return;
  Transpose(work->codes, &work->transposed);
  StoreCodes(work->transposed, place.columns, place.rows,
             transposed.codes + place.column * transposed.columns + place.row, transposed.columns);
  transposed.scale_inv[block_column * TileCount(transposed.columns) + block_row] =
      PowerOfTwo(-exponent);
}

}  // namespace

void StorePatch(const Patch& patch, const Place& place, bfloat16* matrix, int64_t columns) {
  if (matrix == nullptr) return;
  for (int row = 0; row < place.rows; ++row) {
    std::memcpy(matrix + (place.row + row) * columns + place.column, patch.x[row],
                static_cast<size_t>(place.columns) * sizeof(bfloat16));
  }
}

void QuantizePatch(const TileOutputs& tiles, const Place& place, const Patch& patch) {
  Workspace work;
  AddNonfinite(patch, tiles.nonfinite);
  if (tiles.by_rows.data != nullptr) QuantizeRows(patch, place, MatrixOf(tiles.by_rows), &work);
  if (tiles.by_columns.data != nullptr)
    QuantizeColumns(patch, place, MatrixOf(tiles.by_columns), &work);
}

absl::Status RunOperation(const QuantizeTiles& operation) {
  ForPatches(operation.rows, operation.columns, [&](const Place& place) {
    Patch patch;
    FillPatch(place, &patch, [&](int64_t row, bfloat16* to) {
      PrefetchBelow(operation.x, operation.columns, place, row);
      std::copy_n(operation.x + row * operation.columns + place.column, place.columns, to);
    });
    QuantizePatch(operation.tiles, place, patch);
  });
  return absl::OkStatus();
}

absl::Status RunOperation(const QuantizeBlocks& operation) {
  const BlockOutputs outputs = {.normal = MatrixOf(operation.normal),
                                .transposed = MatrixOf(operation.transposed)};
  ForPatches(operation.rows, operation.columns, [&](const Place& place) {
    Patch patch;
    Workspace work;
    FillPatch(place, &patch, [&](int64_t row, bfloat16* to) {
      PrefetchBelow(operation.x, operation.columns, place, row);
      RoundRow(operation.x + row * operation.columns + place.column, place.columns, to);
    });
    AddNonfinite(patch, operation.nonfinite);
    QuantizeBlock(patch, place, outputs, &work);
  });
  return absl::OkStatus();
}

absl::Status RunOperation(const ReadQuantized& operation) {
  const Fp8Matrix from = MatrixOf(operation.tensor);
  std::copy_n(from.codes, from.rows * from.columns, operation.codes);
  std::copy_n(from.scale_inv, operation.tensor.spec.scales(), operation.scale_inv);
  return absl::OkStatus();
}

absl::Status RunOperation(const WriteQuantized& operation) {
  const Fp8Matrix to = MatrixOf(operation.tensor);
  std::copy_n(operation.codes, to.rows * to.columns, to.codes);
  std::copy_n(operation.scale_inv, operation.tensor.spec.scales(), to.scale_inv);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
