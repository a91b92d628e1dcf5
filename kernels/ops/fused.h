// Two operations that run as one, so that what the first computes need not pass through memory.
//
// Each is defined by the two in turn: every code, scale, count and stored number has the bytes that
// they would give, so the bounds are theirs, and fusing never changes the numbers of a training. A
// result of the first operation that is null here is not stored; the second takes it all the same,
// rounded to BF16 as if it had been.
#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/quantize.h"

namespace octavo::kernels {

// RmsNormForward, then QuantizeTiles of y.
struct RmsNormQuantize {
  static constexpr char kName[] = "RmsNormQuantize";
  RmsNormForward norm;  // y may be null; inverse_rms may not
  TileOutputs tiles;    // of y
};

// SwigluForward, then QuantizeTiles of y.
struct SwigluQuantize {
  static constexpr char kName[] = "SwigluQuantize";
  SwigluForward swiglu;  // y may be null
  TileOutputs tiles;     // of y
};

// SwigluBackward, then QuantizeTiles of dgate and of dup.
struct SwigluBackwardQuantize {
  static constexpr char kName[] = "SwigluBackwardQuantize";
  SwigluBackward swiglu;  // dgate and dup may each be null
  TileOutputs dgate_tiles;
  TileOutputs dup_tiles;
};

// RmsNormForward of every head of queries or keys, then Rope of the result.
struct HeadNormRope {
  static constexpr char kName[] = "HeadNormRope";
  RmsNormForward norm;  // rows = rope.tokens * rope.heads, columns = rope.head_dim; y is null
  Rope rope;            // x is written, not read
};

// Its backward: Rope, inverse, of the gradient in rope.x, then RmsNormBackward of the result.
struct HeadNormRopeBackward {
  static constexpr char kName[] = "HeadNormRopeBackward";
  Rope rope;             // whatever x holds afterwards
  RmsNormBackward norm;  // dy is null; the sizes are tied as in HeadNormRope
};

}  // namespace octavo::kernels
