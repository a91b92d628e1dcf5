// A matrix of 8-bit numbers with scales, as operations hand it on: x[r,c] = value(code[r,c]) *
// scale_inv[the tile of (r,c)]. Tiles at an edge hold fewer elements and have a scale like any
// other.
//
// Only its spec is told here. Where codes and scales lie behind `data` is the backend's own affair,
// since what reads them fastest differs from device to device and from one side of a product to the
// other:
// - cuBLASLt wants the scales of 1x128 tiles with the row index contiguous and padded,
//   [ceil(columns / 128)][rows up to 16], those of 128x128 blocks with a row stride that is a
//   multiple of 4, and rows of codes that are a multiple of 16 bytes long;
// - a product in AMX tiles wants its second operand in groups of two or four columns of K, its
// first
//   in plain rows: hence `role` and `tile` are part of the spec;
// - the CPU backend keeps plain rows of codes, then the scales in row-major order.
// One layout for all would be copied into another one before every product. Whoever needs plain
// codes and scales (exports, tests, another device) asks for them with ReadQuantized.
#pragma once

#include <cstdint>

#include "kernels/numerics/element.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels {

// The elements that share a scale.
enum class Tile {
  k1x128,    // 128 of a row: activations and output gradients
  k128x128,  // a square block: weights
  k1x32,     // 32 of a row, as in MXFP8; no backend has it yet
};

enum class ScaleType {
  kFloat32PowerOfTwo,  // 2^e as a float32, e in [-126, 126]
  kE8M0,               // the exponent alone in a byte, as in MXFP8; no backend has it yet
};

// The operand of a GemmFp8 that the matrix will be.
enum class Role { kA, kB };

struct QuantizedSpec {
  int64_t rows;
  int64_t columns;  // what a product sums over
  Element element = Element::kE4M3;
  Tile tile;
  ScaleType scale_type = ScaleType::kFloat32PowerOfTwo;
  Role role;

  // Of the plain row-major scales that ReadQuantized and WriteQuantized exchange.
  OCTAVO_HOST_DEVICE constexpr int64_t scale_rows() const {
    return tile == Tile::k128x128 ? TileCount(rows) : rows;
  }
  OCTAVO_HOST_DEVICE constexpr int64_t scale_columns() const {
    return tile == Tile::k1x32 ? CeilDiv(columns, 32) : TileCount(columns);
  }
  OCTAVO_HOST_DEVICE constexpr int64_t scales() const { return scale_rows() * scale_columns(); }

  bool operator==(const QuantizedSpec&) const = default;
};

// `data` holds Backend::QuantizedBytes(spec) bytes, aligned as Backend::Allocate aligns. They
// depend on nothing but the spec and never shrink as rows or columns grow, so that memory for the
// largest matrix also takes smaller ones.
struct QuantizedTensor {
  QuantizedSpec spec;
  void* data;
};

// Plain codes and scales of a tensor.
struct ReadQuantized {
  static constexpr char kName[] = "ReadQuantized";
  QuantizedTensor tensor;
  uint8_t* codes;    // [rows, columns]
  float* scale_inv;  // [scale_rows, scale_columns]
};

// The reverse: a tensor out of plain codes and scales. Scales must be powers of two in [2^-126,
// 2^126].
struct WriteQuantized {
  static constexpr char kName[] = "WriteQuantized";
  const uint8_t* codes;    // [rows, columns]
  const float* scale_inv;  // [scale_rows, scale_columns]
  QuantizedTensor tensor;
};

}  // namespace octavo::kernels
