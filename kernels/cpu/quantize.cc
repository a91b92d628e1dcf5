// Formulas: kernels/ops/quantize.h. The work is cut into patches of 128 x 128, one whole tile each
// way; a patch at an edge is filled up with zeros, which no amax sees and nobody reads. patch.h has
// the vector code.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/patch.h"
#include "kernels/cpu/quantized_layout.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {
namespace {

// Where a patch lies in a matrix, and how much of it is inside.
struct Place {
  int64_t row;
  int64_t column;
  int rows;
  int columns;
};

Place PlaceOf(int64_t index, int64_t rows, int64_t columns) {
  const int64_t across = TileCount(columns);
  const int64_t row = index / across * kScaleTile;
  const int64_t column = index % across * kScaleTile;
  return {.row = row,
          .column = column,
          .rows = static_cast<int>(std::min(kScaleTile, rows - row)),
          .columns = static_cast<int>(std::min(kScaleTile, columns - column))};
}

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

void LoadPatch(const bfloat16* x, int64_t pitch, const Place& place, Patch* patch) {
  if (place.rows < kSide || place.columns < kSide) std::memset(patch, 0, sizeof(*patch));
  for (int row = 0; row < place.rows; ++row) {
    std::memcpy(patch->x[row], x + (place.row + row) * pitch + place.column,
                static_cast<size_t>(place.columns) * sizeof(bfloat16));
  }
}

void LoadPatch(const float* x, int64_t pitch, const Place& place, Patch* patch) {
  if (place.rows < kSide || place.columns < kSide) std::memset(patch, 0, sizeof(*patch));
  for (int row = 0; row < place.rows; ++row) {
    RoundRow(x + (place.row + row) * pitch + place.column, place.columns, patch->x[row]);
  }
}

struct Workspace {
  Patch patch;
  Codes codes;
  Codes transposed;
  alignas(64) float amax[kSide];
  alignas(64) float scale[kSide];
};

void QuantizeRows(const Fp8Matrix& to, const Place& place, Workspace* work) {
  const int64_t tiles = TileCount(to.columns);
  LargestOfTiles(Way::kRows, work->patch, work->amax);
  ChooseScales(to.element, work->amax, place.rows, work->scale,
               to.scale_inv + place.row * tiles + place.column / kScaleTile, tiles);
  Encode(to.element, Way::kRows, work->patch, work->scale, &work->codes);
  StoreCodes(work->codes, place.rows, place.columns,
             to.codes + place.row * to.columns + place.column, to.columns);
}

// `to` is x^T.
void QuantizeColumns(const Fp8Matrix& to, const Place& place, Workspace* work) {
  const int64_t tiles = TileCount(to.columns);
  LargestOfTiles(Way::kColumns, work->patch, work->amax);
  ChooseScales(to.element, work->amax, place.columns, work->scale,
               to.scale_inv + place.column * tiles + place.row / kScaleTile, tiles);
  Encode(to.element, Way::kColumns, work->patch, work->scale, &work->codes);
  Transpose(work->codes, &work->transposed);
  StoreCodes(work->transposed, place.columns, place.rows,
             to.codes + place.column * to.columns + place.row, to.columns);
}

void QuantizeBlock(const Fp8Matrix& normal, const Fp8Matrix& transposed, const Place& place,
                   Workspace* work) {
  const int64_t block_row = place.row / kScaleTile;
  const int64_t block_column = place.column / kScaleTile;
  const Element element = normal.codes != nullptr ? normal.element : transposed.element;
  const int exponent = ScaleExponent(LargestOf(work->patch), element);
  std::fill_n(work->scale, kSide, PowerOfTwo(exponent));
  Encode(element, Way::kRows, work->patch, work->scale, &work->codes);
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

// The patches that cover a matrix.
int64_t Patches(int64_t rows, int64_t columns) { return TileCount(rows) * TileCount(columns); }

}  // namespace

absl::Status RunOperation(const QuantizeTiles& operation) {
  const Fp8Matrix by_rows = MatrixOf(operation.by_rows);
  const Fp8Matrix by_columns = MatrixOf(operation.by_columns);
  uint64_t nonfinite = 0;
#pragma omp parallel for schedule(static) reduction(+ : nonfinite)
  for (int64_t i = 0; i < Patches(operation.rows, operation.columns); ++i) {
    const Place place = PlaceOf(i, operation.rows, operation.columns);
    Workspace work;
    LoadPatch(operation.x, operation.columns, place, &work.patch);
    if (operation.nonfinite != nullptr) nonfinite += CountNonfinite(work.patch);
    if (by_rows.codes != nullptr) QuantizeRows(by_rows, place, &work);
    if (by_columns.codes != nullptr) QuantizeColumns(by_columns, place, &work);
  }
  if (operation.nonfinite != nullptr) *operation.nonfinite += nonfinite;
  return absl::OkStatus();
}

absl::Status RunOperation(const QuantizeBlocks& operation) {
  const Fp8Matrix normal = MatrixOf(operation.normal);
  const Fp8Matrix transposed = MatrixOf(operation.transposed);
  uint64_t nonfinite = 0;
#pragma omp parallel for schedule(static) reduction(+ : nonfinite)
  for (int64_t i = 0; i < Patches(operation.rows, operation.columns); ++i) {
    const Place place = PlaceOf(i, operation.rows, operation.columns);
    Workspace work;
    LoadPatch(operation.x, operation.columns, place, &work.patch);
    if (operation.nonfinite != nullptr) nonfinite += CountNonfinite(work.patch);
    QuantizeBlock(normal, transposed, place, &work);
  }
  if (operation.nonfinite != nullptr) *operation.nonfinite += nonfinite;
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
