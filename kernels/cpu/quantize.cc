// Formulas: kernels/ops/quantize.h. The work is cut into patches of 128 x 128, one whole tile each
// way; a patch at an edge is filled up with zeros, which no amax sees and nobody reads.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/quantized_layout.h"
#include "kernels/cpu/simd.h"
#include "kernels/numerics/element.h"
#include "kernels/numerics/scale.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int kSide = static_cast<int>(kScaleTile);
constexpr int kLine = 32;  // BF16 numbers in a vector

typedef uint16_t Bits __attribute__((vector_size(64)));  // of kLine BF16 numbers
typedef int16_t Shorts __attribute__((vector_size(64)));
typedef uint8_t LineBytes __attribute__((vector_size(32)));

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
  OCTAVO_INLINE static void Run(const Patch* patch, uint64_t* count) {
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

// What the bits of a BF16 number say about its code. A number is normal in the format from the
// exponent field `first_normal` on; below it is a multiple of the format's smallest number, which
// its 8-bit significand reaches shifted right by `places_from` minus its exponent field.
//
// `largest_shift`: a scale of at most this power is applied to the exponent field of BF16 numbers:
// a subnormal is then below half of the format's smallest number and becomes 0 as if it had the
// leading one. Larger scales belong to tiles that hold next to nothing; those go through float32.
struct E4m3Format {
  static constexpr Element kElement = Element::kE4M3;
  static constexpr uint16_t kLargest = 0x43E0;  // 448
  static constexpr uint16_t kMantissaBits = 3;
  static constexpr uint16_t kBiasDifference = 127 - 7;
  static constexpr int16_t kFirstNormal = 127 - 6;
  static constexpr int16_t kPlacesFrom = 134 - 9;
  static constexpr int16_t kLargestShift = 110;
};
struct E5m2Format {
  static constexpr Element kElement = Element::kE5M2;
  static constexpr uint16_t kLargest = 0x4760;  // 57344
  static constexpr uint16_t kMantissaBits = 2;
  static constexpr uint16_t kBiasDifference = 127 - 15;
  static constexpr int16_t kFirstNormal = 127 - 14;
  static constexpr int16_t kPlacesFrom = 134 - 16;
  static constexpr int16_t kLargestShift = 103;
};

// The code of x * 2^exponent for 32 BF16 numbers, none above the format's largest but in a tile
// with an infinity, whose exponent is 0.
template <typename Format>
OCTAVO_INLINE LineBytes EncodeLine(Bits x, Shorts exponent) {
  constexpr uint16_t kDropped = 7 - Format::kMantissaBits;
  const Bits sign = (x >> 8) & 0x80;
  const Bits magnitude = x & 0x7FFF;
  const Shorts field = reinterpret_cast<Shorts>(magnitude >> 7) + exponent;
  Bits scaled = magnitude + (reinterpret_cast<Bits>(exponent) << 7);
  scaled = reinterpret_cast<Shorts>(scaled) > static_cast<int16_t>(Format::kLargest)
               ? Bits{} + Format::kLargest
               : scaled;
  // Normal: keep the upper mantissa bits, move the bias.
  const Bits normal =
      ((scaled + static_cast<uint16_t>((1 << (kDropped - 1)) - 1) + ((scaled >> kDropped) & 1)) >>
       kDropped) -
      static_cast<uint16_t>(Format::kBiasDifference << Format::kMantissaBits);
  // Below: 9 places leave nothing of the significand's 8 bits.
  constexpr int16_t kNothing = Format::kPlacesFrom - 9;
  const Bits places =
      reinterpret_cast<Bits>(field < kNothing ? Shorts{} + 9 : Format::kPlacesFrom - field) & 15;
  const Bits significand = (magnitude & 0x7F) | 0x80;
  const Bits half = (Bits{} + 1) << ((places - 1) & 15);
  const Bits subnormal = (significand + half - 1 + ((significand >> places) & 1)) >> places;
  const Bits code = sign | (field < Format::kFirstNormal ? subnormal : normal);
  return __builtin_convertvector(magnitude > 0x7F80 ? Bits{} + 0x7F : code, LineBytes);
}

// The scalar rule for each of 32 numbers times its scale.
template <typename Format>
OCTAVO_INLINE void EncodeWide(const bfloat16* x, const int16_t* exponent, uint8_t* codes) {
  for (int i = 0; i < kLine; ++i)
    codes[i] = FloatToCode(Format::kElement, ToFloat(x[i]) * PowerOfTwo(exponent[i]));
}

// One exponent per element of a line.
template <typename Format>
OCTAVO_INLINE void EncodeWith(const bfloat16* x, const int16_t* exponents, bool narrow,
                              uint8_t* codes) {
  if (narrow) {
    Shorts exponent;
    std::memcpy(&exponent, exponents, sizeof(exponent));
    const LineBytes encoded = EncodeLine<Format>(LoadBits(x), exponent);
    std::memcpy(codes, &encoded, sizeof(encoded));
  } else {
    EncodeWide<Format>(x, exponents, codes);
  }
}

template <typename Format>
struct EncodeByRows {
  OCTAVO_INLINE static void Run(const Patch* patch, const int16_t* exponent, Codes* codes) {
    for (int row = 0; row < kSide; ++row) {
      int16_t exponents[kLine];
      std::fill_n(exponents, kLine, exponent[row]);
      const bool narrow = exponent[row] <= Format::kLargestShift;
      for (int c = 0; c < kSide; c += kLine)
        EncodeWith<Format>(&patch->x[row][c], exponents, narrow, &codes->code[row][c]);
    }
  }
};

template <typename Format>
struct EncodeByColumns {
  OCTAVO_INLINE static void Run(const Patch* patch, const int16_t* exponent, Codes* codes) {
    for (int c = 0; c < kSide; c += kLine) {
      const bool narrow =
          *std::max_element(exponent + c, exponent + c + kLine) <= Format::kLargestShift;
      for (int row = 0; row < kSide; ++row)
        EncodeWith<Format>(&patch->x[row][c], exponent + c, narrow, &codes->code[row][c]);
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

// Which way of a patch its tiles run.
enum class Way { kRows, kColumns };

void Encode(Element element, Way way, const Patch& patch, const int16_t* exponent, Codes* codes) {
  const bool e4m3 = element == Element::kE4M3;
  if (way == Way::kRows) {
    e4m3 ? Vectorized<EncodeByRows<E4m3Format>>(&patch, exponent, codes)
         : Vectorized<EncodeByRows<E5m2Format>>(&patch, exponent, codes);
  } else {
    e4m3 ? Vectorized<EncodeByColumns<E4m3Format>>(&patch, exponent, codes)
         : Vectorized<EncodeByColumns<E5m2Format>>(&patch, exponent, codes);
  }
}

// The exponents of tiles with these amax.
void ChooseExponents(Element element, const float* amax, int16_t* exponents) {
  for (int i = 0; i < kSide; ++i)
    exponents[i] = static_cast<int16_t>(ScaleExponent(amax[i], element));
}

// scale_inv of the first `count` exponents to every `stride`-th element.
void StoreScales(const int16_t* exponents, int count, float* scale_inv, int64_t stride) {
  for (int i = 0; i < count; ++i) scale_inv[i * stride] = PowerOfTwo(-exponents[i]);
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
  alignas(64) float amax[kSide];
  alignas(64) int16_t exponent[kSide];
};

void QuantizeRows(const Fp8Matrix& to, const Place& place, Workspace* work) {
  const int64_t tiles = TileCount(to.columns);
  Vectorized<PatchRowAmax>(&work->patch, work->amax);
  ChooseExponents(to.element, work->amax, work->exponent);
  StoreScales(work->exponent, place.rows,
              to.scale_inv + place.row * tiles + place.column / kScaleTile, tiles);
  Encode(to.element, Way::kRows, work->patch, work->exponent, &work->codes);
  StoreCodes(work->codes, place.rows, place.columns,
             to.codes + place.row * to.columns + place.column, to.columns);
}

// `to` is x^T.
void QuantizeColumns(const Fp8Matrix& to, const Place& place, Workspace* work) {
  const int64_t tiles = TileCount(to.columns);
  Vectorized<PatchColumnAmax>(&work->patch, work->amax);
  ChooseExponents(to.element, work->amax, work->exponent);
  StoreScales(work->exponent, place.columns,
              to.scale_inv + place.column * tiles + place.row / kScaleTile, tiles);
  Encode(to.element, Way::kColumns, work->patch, work->exponent, &work->codes);
  Transpose(work->codes, &work->transposed);
  StoreCodes(work->transposed, place.columns, place.rows,
             to.codes + place.column * to.columns + place.row, to.columns);
}

void QuantizeBlock(const Fp8Matrix& normal, const Fp8Matrix& transposed, const Place& place,
                   Workspace* work) {
  const int64_t block_row = place.row / kScaleTile;
  const int64_t block_column = place.column / kScaleTile;
  float amax = 0;
  Vectorized<PatchAmax>(&work->patch, &amax);
  const int exponent = ScaleExponent(amax, normal.element);
  std::fill_n(work->exponent, kSide, static_cast<int16_t>(exponent));
  Encode(normal.element, Way::kRows, work->patch, work->exponent, &work->codes);
  StoreCodes(work->codes, place.rows, place.columns,
             normal.codes + place.row * normal.columns + place.column, normal.columns);
  normal.scale_inv[block_row * TileCount(normal.columns) + block_column] = PowerOfTwo(-exponent);
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
    if (operation.nonfinite != nullptr) Vectorized<CountNonfinite>(&work.patch, &nonfinite);
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
    if (operation.nonfinite != nullptr) Vectorized<CountNonfinite>(&work.patch, &nonfinite);
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
