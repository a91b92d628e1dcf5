// Formulas: kernels/ops/quantize.h. The work is cut into patches of 128 x 128, one whole tile each
// way; a patch at an edge is filled up with zeros, which no amax sees and nobody reads.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int kSide = static_cast<int>(kScaleTile);
constexpr int kLine = 32;  // BF16 numbers in a vector

typedef uint16_t Bits __attribute__((vector_size(64)));  // of 32 BF16 numbers

struct alignas(64) Patch {
  bfloat16 x[kSide][kSide];
};
struct alignas(64) Codes {
  uint8_t code[kSide][kSide];
};

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

OCTAVO_INLINE Bits LoadBits(const bfloat16* from) {
  Bits bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// |x|, but 0 for NaN: as unsigned numbers these order like the floats they are.
OCTAVO_INLINE Bits Magnitude(Bits x) {
  const Bits magnitude = x & 0x7FFF;
  return magnitude > 0x7F80 ? Bits{} : magnitude;
}

OCTAVO_INLINE float LargestLane(Bits x) {
  uint16_t lanes[kLine];
  std::memcpy(lanes, &x, sizeof(lanes));
  for (int half = kLine / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = std::max(lanes[i], lanes[i + half]);
  return ToFloat(bfloat16{lanes[0]});
}

// The largest magnitude of each row, of each column and of the whole patch.
struct PatchRowAmax {
  OCTAVO_INLINE static void Run(const Patch* patch, float* amax) {
    for (int row = 0; row < kSide; ++row) {
      Bits largest = {};
      for (int c = 0; c < kSide; c += kLine) {
        const Bits magnitude = Magnitude(LoadBits(&patch->x[row][c]));
        largest = magnitude > largest ? magnitude : largest;
      }
      amax[row] = LargestLane(largest);
    }
  }
};

struct PatchColumnAmax {
  OCTAVO_INLINE static void Run(const Patch* patch, float* amax) {
    for (int c = 0; c < kSide; c += kLine) {
      Bits largest = {};
      for (int row = 0; row < kSide; ++row) {
        const Bits magnitude = Magnitude(LoadBits(&patch->x[row][c]));
        largest = magnitude > largest ? magnitude : largest;
      }
      uint16_t lanes[kLine];
      std::memcpy(lanes, &largest, sizeof(lanes));
      for (int i = 0; i < kLine; ++i) amax[c + i] = ToFloat(bfloat16{lanes[i]});
    }
  }
};

struct PatchAmax {
  OCTAVO_INLINE static void Run(const Patch* patch, float* amax) {
    Bits largest = {};
    for (int row = 0; row < kSide; ++row) {
      for (int c = 0; c < kSide; c += kLine) {
        const Bits magnitude = Magnitude(LoadBits(&patch->x[row][c]));
        largest = magnitude > largest ? magnitude : largest;
      }
    }
    *amax = LargestLane(largest);
  }
};

struct CountNonfinite {
  OCTAVO_INLINE static void Run(const Patch* patch, uint32_t* count) {
    Bits found = {};
    for (int row = 0; row < kSide; ++row) {
      for (int c = 0; c < kSide; c += kLine)
        found += (LoadBits(&patch->x[row][c]) & 0x7FFF) >= 0x7F80 ? Bits{} + 1 : Bits{};
    }
    uint16_t lanes[kLine];
    std::memcpy(lanes, &found, sizeof(lanes));
    for (const uint16_t lane : lanes) *count += lane;
  }
};

// FloatToE4m3 of each lane.
OCTAVO_INLINE Bytes Encode(Floats x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words sign = (bits >> 24) & 0x80u;
  const Words absolute = bits & 0x7FFFFFFFu;
  const Words magnitude = absolute > 0x43E00000u ? Words{} + 0x43E00000u : absolute;
  const Words normal = ((magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  const Words subnormal =
      reinterpret_cast<Words>(reinterpret_cast<Floats>(magnitude) + 16384.0f) - 0x46800000u;
  const Words code = sign | (magnitude < 0x3C800000u ? subnormal : normal);
  return __builtin_convertvector(absolute > 0x7F800000u ? Words{} + 0x7Fu : code, Bytes);
}

struct EncodeByRows {
  OCTAVO_INLINE static void Run(const Patch* patch, const float* scale, Codes* codes) {
    for (int row = 0; row < kSide; ++row) {
      for (int c = 0; c < kSide; c += kLanes) {
        const Bytes encoded = Encode(Load(&patch->x[row][c]) * scale[row]);
        std::memcpy(&codes->code[row][c], &encoded, sizeof(encoded));
      }
    }
  }
};

struct EncodeByColumns {
  OCTAVO_INLINE static void Run(const Patch* patch, const float* scale, Codes* codes) {
    for (int c = 0; c < kSide; c += kLanes) {
      const Floats scales = Load(scale + c);
      for (int row = 0; row < kSide; ++row) {
        const Bytes encoded = Encode(Load(&patch->x[row][c]) * scales);
        std::memcpy(&codes->code[row][c], &encoded, sizeof(encoded));
      }
    }
  }
};

// 16 x 16 bytes: four rounds, each of which interleaves line i with line i + 8, rotate the index
// bits of row and column by one each; after four they have changed places.
OCTAVO_INLINE void TransposeSquare(const uint8_t* from, uint8_t* to) {
  Bytes lines[16];
  for (int i = 0; i < 16; ++i) std::memcpy(&lines[i], from + i * kSide, sizeof(Bytes));
  for (int round = 0; round < 4; ++round) {
    Bytes mixed[16];
    for (int i = 0; i < 8; ++i) {
      mixed[2 * i] = __builtin_shufflevector(lines[i], lines[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                             20, 5, 21, 6, 22, 7, 23);
      mixed[2 * i + 1] = __builtin_shufflevector(lines[i], lines[i + 8], 8, 24, 9, 25, 10, 26, 11,
                                                 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::memcpy(lines, mixed, sizeof(lines));
  }
  for (int i = 0; i < 16; ++i) std::memcpy(to + i * kSide, &lines[i], sizeof(Bytes));
}

void Transpose(const Codes& codes, Codes* transposed) {
  for (int row = 0; row < kSide; row += 16) {
    for (int column = 0; column < kSide; column += 16)
      TransposeSquare(&codes.code[row][column], &transposed->code[column][row]);
  }
}

// The inside of a patch's codes to its place in a matrix whose rows are `pitch` bytes long.
void StoreCodes(const Codes& codes, int rows, int columns, uint8_t* to, int64_t pitch) {
  for (int row = 0; row < rows; ++row)
    std::memcpy(to + row * pitch, codes.code[row], static_cast<size_t>(columns));
}

// amax becomes scale; scale_inv goes to every `stride`-th element of `inverse`.
void ChooseScales(float* amax, int count, float* inverse, int64_t stride) {
  for (int i = 0; i < kSide; ++i) {
    const int exponent = ScaleExponent(amax[i]);
    amax[i] = PowerOfTwo(exponent);
    if (i < count) inverse[i * stride] = PowerOfTwo(-exponent);
  }
}

void LoadPatch(const bfloat16* x, int64_t pitch, const Place& place, Patch* patch) {
  if (place.rows < kSide || place.columns < kSide) std::memset(patch, 0, sizeof(*patch));
  for (int row = 0; row < place.rows; ++row) {
    std::memcpy(patch->x[row], x + (place.row + row) * pitch + place.column,
                static_cast<size_t>(place.columns) * sizeof(bfloat16));
  }
}

struct RoundRow {
  OCTAVO_INLINE static void Run(const float* x, int count, bfloat16* rounded) {
    int i = 0;
    for (; i + kLanes <= count; i += kLanes) Store(rounded + i, Load(x + i));
    for (; i < count; ++i) rounded[i] = ToBfloat16(x[i]);
  }
};

void LoadPatch(const float* x, int64_t pitch, const Place& place, Patch* patch) {
  if (place.rows < kSide || place.columns < kSide) std::memset(patch, 0, sizeof(*patch));
  for (int row = 0; row < place.rows; ++row) {
    Vectorized<RoundRow>(x + (place.row + row) * pitch + place.column, place.columns,
                         patch->x[row]);
  }
}

struct Workspace {
  Patch patch;
  Codes codes;
  Codes transposed;
  alignas(64) float scale[kSide];
};

void QuantizeRows(const QuantizeTiles& op, const Place& place, Workspace* work) {
  const int64_t tiles = TileCount(op.columns);
  Vectorized<PatchRowAmax>(&work->patch, work->scale);
  ChooseScales(work->scale, place.rows,
               op.row_scale_inv + place.row * tiles + place.column / kScaleTile, tiles);
  Vectorized<EncodeByRows>(&work->patch, work->scale, &work->codes);
  StoreCodes(work->codes, place.rows, place.columns,
             op.row_codes + place.row * op.columns + place.column, op.columns);
}

void QuantizeColumns(const QuantizeTiles& op, const Place& place, Workspace* work) {
  const int64_t tiles = TileCount(op.rows);
  Vectorized<PatchColumnAmax>(&work->patch, work->scale);
  ChooseScales(work->scale, place.columns,
               op.column_scale_inv + place.column * tiles + place.row / kScaleTile, tiles);
  Vectorized<EncodeByColumns>(&work->patch, work->scale, &work->codes);
  Transpose(work->codes, &work->transposed);
  StoreCodes(work->transposed, place.columns, place.rows,
             op.column_codes + place.column * op.rows + place.row, op.rows);
}

void QuantizeBlock(const QuantizeBlocks& op, const Place& place, Workspace* work) {
  const int64_t block_row = place.row / kScaleTile;
  const int64_t block_column = place.column / kScaleTile;
  float amax = 0;
  Vectorized<PatchAmax>(&work->patch, &amax);
  const int exponent = ScaleExponent(amax);
  std::fill_n(work->scale, kSide, PowerOfTwo(exponent));
  Vectorized<EncodeByRows>(&work->patch, work->scale, &work->codes);
  StoreCodes(work->codes, place.rows, place.columns,
             op.codes + place.row * op.columns + place.column, op.columns);
  op.scale_inv[block_row * TileCount(op.columns) + block_column] = PowerOfTwo(-exponent);
  if (op.transposed_codes == nullptr) return;
  Transpose(work->codes, &work->transposed);
  StoreCodes(work->transposed, place.columns, place.rows,
             op.transposed_codes + place.column * op.rows + place.row, op.rows);
  op.transposed_scale_inv[block_column * TileCount(op.rows) + block_row] = PowerOfTwo(-exponent);
}

}  // namespace

absl::Status RunOperation(const QuantizeTiles& operation) {
  uint32_t nonfinite = 0;
#pragma omp parallel for schedule(static) reduction(+ : nonfinite)
  for (int64_t i = 0; i < BlockScales(operation.rows, operation.columns); ++i) {
    const Place place = PlaceOf(i, operation.rows, operation.columns);
    Workspace work;
    LoadPatch(operation.x, operation.columns, place, &work.patch);
    if (operation.nonfinite != nullptr) Vectorized<CountNonfinite>(&work.patch, &nonfinite);
    if (operation.row_codes != nullptr) QuantizeRows(operation, place, &work);
    if (operation.column_codes != nullptr) QuantizeColumns(operation, place, &work);
  }
  if (operation.nonfinite != nullptr) *operation.nonfinite += nonfinite;
  return absl::OkStatus();
}

absl::Status RunOperation(const QuantizeBlocks& operation) {
  uint32_t nonfinite = 0;
#pragma omp parallel for schedule(static) reduction(+ : nonfinite)
  for (int64_t i = 0; i < BlockScales(operation.rows, operation.columns); ++i) {
    const Place place = PlaceOf(i, operation.rows, operation.columns);
    Workspace work;
    LoadPatch(operation.x, operation.columns, place, &work.patch);
    if (operation.nonfinite != nullptr) Vectorized<CountNonfinite>(&work.patch, &nonfinite);
    QuantizeBlock(operation, place, &work);
  }
  if (operation.nonfinite != nullptr) *operation.nonfinite += nonfinite;
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
