// c[M,N] = a[M,K] b[N,K]^T over E4M3 and E5M2 with block scales, through mma.sync m16n8k32. Plain
// on purpose: the second opinion beside cuBLASLt, and what every later kernel is compared with.
//
// A block of 4 warps computes 64 x 64 of c, a warp 32 x 32. K advances by 128, one scale tile: its
// products are summed from zero in the tensor core and then promoted, acc += partial * scale_a *
// scale_b in float32, so that the narrow accumulator of the tensor core never holds more than 128
// terms.
#include "kernels/cuda/device/instructions.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantized_layout.h"
#include "kernels/numerics/bfloat16.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cuda {
namespace {

constexpr int kTile = 64;                             // rows of c and columns of c a block
constexpr int kDepth = static_cast<int>(kScaleTile);  // of K a round: one scale tile
constexpr int kPitch = kDepth + 16;                   // bytes; fragment reads then meet every bank
constexpr int kWarpTile = 32;                         // rows and columns of c a warp
constexpr unsigned kWarps = 4;
constexpr unsigned kThreads = kWarps * kWarpSize;
constexpr int kRowSteps = kWarpTile / 16;    // mma tiles down
constexpr int kColumnSteps = kWarpTile / 8;  // and across

// Rows [row0, row0 + 64) and columns [k0, k0 + 128) of a matrix into shared memory; zero codes
// beyond its edges.
OCTAVO_DEVICE void LoadCodes(const QuantizedLayout& matrix, int64_t row0, int64_t k0,
                             uint8_t* shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += static_cast<int>(kThreads)) {
    const int64_t row = row0 + i / kDepth;
    const int64_t k = k0 + i % kDepth;
    const bool inside = row < matrix.rows && k < matrix.columns;
    shared[(i / kDepth) * kPitch + i % kDepth] =
        inside ? matrix.codes[matrix.CodeAt(row, k)] : uint8_t{0};
  }
}

// The scale that dequantises row `row` in the K tile `tile`; 0 beyond the edge, where codes are 0
// as well.
OCTAVO_DEVICE float ScaleOf(const QuantizedLayout& matrix, int64_t row, int64_t tile) {
  return row < matrix.rows ? matrix.scale_inv[matrix.ScaleAt(row, tile)] : 0.0f;
}

OCTAVO_DEVICE uint32_t Word(const uint8_t* shared, int row, int k) {
  const uint8_t* at = shared + row * kPitch + k;
  return uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
}

// Four float32 sums of each of the warp's mma tiles.
using Sums = float[kRowSteps][kColumnSteps][4];

template <Element a_element, Element b_element>
OCTAVO_DEVICE void MultiplyTile(const uint8_t* a, const uint8_t* b, int row0, int column0,
                                Sums& partial) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int group = lane / 4;
  const int t = lane % 4;
  for (int k = 0; k < kDepth; k += 32) {
    uint32_t b_words[kColumnSteps][2];
    for (int j = 0; j < kColumnSteps; ++j) {
      b_words[j][0] = Word(b, column0 + 8 * j + group, k + 4 * t);
      b_words[j][1] = Word(b, column0 + 8 * j + group, k + 16 + 4 * t);
    }
    for (int i = 0; i < kRowSteps; ++i) {
      const int row = row0 + 16 * i + group;
      const uint32_t a_words[4] = {Word(a, row, k + 4 * t), Word(a, row + 8, k + 4 * t),
                                   Word(a, row, k + 16 + 4 * t), Word(a, row + 8, k + 16 + 4 * t)};
      for (int j = 0; j < kColumnSteps; ++j)
        Mma<a_element, b_element>(partial[i][j], a_words, b_words[j]);
    }
  }
}

OCTAVO_DEVICE void Store(const GemmFp8& op, int64_t row, int64_t column, float value) {
  const int64_t columns = op.b.spec.rows;
  if (row >= op.a.spec.rows || column >= columns) return;
  if (op.bias != nullptr) value += ToFloat(op.bias[column]);
  if (op.residual != nullptr)
    value += ToFloat(op.residual[row * PitchOr(op.residual_pitch, columns) + column]);
  const int64_t at = row * PitchOr(op.c_pitch, columns) + column;
  if (op.c_type == ResultType::kBfloat16) {
    static_cast<bfloat16*>(op.c)[at] = ToBfloat16(value);
  } else {
    float* c = static_cast<float*>(op.c);
    c[at] = op.accumulate ? c[at] + value : value;
  }
}

template <Element a_element, Element b_element>
OCTAVO_KERNEL void GemmFp8Kernel(GemmFp8 op) {
  OCTAVO_SHARED(uint8_t, a_codes, kTile * kPitch);
  OCTAVO_SHARED(uint8_t, b_codes, kTile * kPitch);
  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  const int group = static_cast<int>(threadIdx.x % kWarpSize) / 4;
  const int t = static_cast<int>(threadIdx.x % kWarpSize) % 4;
  const int warp_row = warp / 2 * kWarpTile;
  const int warp_column = warp % 2 * kWarpTile;
  const int64_t row0 = int64_t{blockIdx.y} * kTile;
  const int64_t column0 = int64_t{blockIdx.x} * kTile;

  const QuantizedLayout a = LayoutOf(op.a);
  const QuantizedLayout b = LayoutOf(op.b);

  Sums sums = {};
  for (int64_t k0 = 0; k0 < a.columns; k0 += kDepth) {
    SyncThreads();  // the former round has been read
    LoadCodes(a, row0, k0, a_codes);
    LoadCodes(b, column0, k0, b_codes);
    SyncThreads();
    Sums partial = {};
    MultiplyTile<a_element, b_element>(a_codes, b_codes, warp_row, warp_column, partial);
    const int64_t tile = k0 / kDepth;
    for (int i = 0; i < kRowSteps; ++i) {
      for (int j = 0; j < kColumnSteps; ++j) {
        for (int e = 0; e < 4; ++e) {
          const int64_t row = row0 + warp_row + 16 * i + group + e / 2 * 8;
          const int64_t column = column0 + warp_column + 8 * j + 2 * t + e % 2;
          sums[i][j][e] += partial[i][j][e] * ScaleOf(a, row, tile) * ScaleOf(b, column, tile);
        }
      }
    }
  }

  for (int i = 0; i < kRowSteps; ++i) {
    for (int j = 0; j < kColumnSteps; ++j) {
      for (int e = 0; e < 4; ++e) {
        Store(op, row0 + warp_row + 16 * i + group + e / 2 * 8,
              column0 + warp_column + 8 * j + 2 * t + e % 2, sums[i][j][e]);
      }
    }
  }
}

}  // namespace

Error Enqueue(const GemmFp8& operation, Stream stream) {
  const QuantizedSpec& a = operation.a.spec;
  const QuantizedSpec& b = operation.b.spec;
  const int64_t down = CeilDiv(a.rows, kTile);
  const int64_t across = CeilDiv(b.rows, kTile);
  const bool both_blocks = a.tile == Tile::k128x128 && b.tile == Tile::k128x128;
  const bool both_e5m2 = a.element == Element::kE5M2 && b.element == Element::kE5M2;
  const bool bad_accumulate =
      operation.accumulate && (operation.c_type != ResultType::kFloat32 ||
                               operation.bias != nullptr || operation.residual != nullptr);
  if (a.rows < 1 || b.rows < 1 || a.columns < 1 || a.columns != b.columns || down > 65535 ||
      across > (int64_t{1} << 31) || both_blocks || both_e5m2 || bad_accumulate) {
    return kInvalidValue;
  }
  constexpr Element kE4M3 = Element::kE4M3, kE5M2 = Element::kE5M2;
  void (*const kernel)(GemmFp8) = a.element == kE5M2   ? GemmFp8Kernel<kE5M2, kE4M3>
                                  : b.element == kE5M2 ? GemmFp8Kernel<kE4M3, kE5M2>
                                                       : GemmFp8Kernel<kE4M3, kE4M3>;
  return Launch(kernel, {static_cast<unsigned>(across), static_cast<unsigned>(down)}, kThreads,
                stream, operation);
}

}  // namespace octavo::kernels::cuda
