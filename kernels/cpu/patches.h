// A matrix cut into patches of 128 x 128, which are filled from any source, in vectors, and then
// quantised both ways. A patch at an edge is filled up with zeros, which no amax sees and nobody
// reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/patch.h"
#include "kernels/ops/quantize.h"

namespace octavo::kernels::cpu {

// Where a patch lies in a matrix, and how much of it is inside.
struct Place {
  int64_t row;
  int64_t column;
  int rows;
  int columns;
};

inline Place PlaceOf(int64_t index, int64_t rows, int64_t columns) {
  const int64_t across = TileCount(columns);
  const int64_t row = index / across * kScaleTile;
  const int64_t column = index % across * kScaleTile;
  return {.row = row,
          .column = column,
          .rows = static_cast<int>(std::min(kScaleTile, rows - row)),
          .columns = static_cast<int>(std::min(kScaleTile, columns - column))};
}

// Calls `body` with each Place of a matrix, from all threads.
template <typename Body>
void ForPatches(int64_t rows, int64_t columns, const Body& body) {
  const int64_t patches = TileCount(rows) * TileCount(columns);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < patches; ++i) body(PlaceOf(i, rows, columns));
}

// What of a patch lies outside of the matrix becomes zero.
inline void ClearOutside(const Place& place, Patch* patch) {
  if (place.rows < kSide || place.columns < kSide) std::memset(patch, 0, sizeof(*patch));
}

// The rows of a patch lie a row of the matrix apart, which the processor does not foresee: asks for
// that of some rows below `row`, which will be read soon.
template <typename T>
void PrefetchBelow(const T* matrix, int64_t columns, const Place& place, int64_t row) {
  constexpr int64_t kRowsAhead = 8;
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t below = row + kRowsAhead;
  if (below >= place.row + place.rows) return;
  const T* const part = matrix + below * columns + place.column;
  for (int64_t c = 0; c < place.columns; c += kLine) __builtin_prefetch(part + c);
}

// Fills a patch with the part of a matrix that `write_row` gives row by row; it takes the row in
// the matrix and where place.columns elements of it go.
template <typename WriteRow>
void FillPatch(const Place& place, Patch* patch, const WriteRow& write_row) {
  ClearOutside(place, patch);
  for (int row = 0; row < place.rows; ++row) write_row(place.row + row, patch->x[row]);
}

// The inside of a patch to its place in a matrix [rows, columns]; null: nowhere.
void StorePatch(const Patch& patch, const Place& place, bfloat16* matrix, int64_t columns);

// The codes, scales and counts of a patch, at their places.
void QuantizePatch(const TileOutputs& tiles, const Place& place, const Patch& patch);

}  // namespace octavo::kernels::cpu
