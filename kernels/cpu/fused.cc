// Operations that quantise what they compute, patch by patch: kernels/ops/fused.h.
#include "kernels/cpu/operations.h"
#include "kernels/cpu/patches.h"
#include "kernels/cpu/rows.h"

namespace octavo::kernels::cpu {

absl::Status RunOperation(const RmsNormQuantize& operation) {
  const RmsNormForward& norm = operation.norm;
  InverseRmsOfRows(norm);
  ForPatches(norm.rows, norm.columns, [&](const Place& place) {
    Patch y;
    FillPatch(place, &y, [&](int64_t row, bfloat16* to) {
      PrefetchBelow(norm.x, norm.columns, place, row);
      Normalise(norm, norm.inverse_rms[row], {row, place.column, place.columns}, to);
    });
    StorePatch(y, place, norm.y, norm.columns);
    QuantizePatch(operation.tiles, place, y);
  });
  return absl::OkStatus();
}

absl::Status RunOperation(const SwigluQuantize& operation) {
  const SwigluForward& swiglu = operation.swiglu;
  ForPatches(swiglu.rows, swiglu.columns, [&](const Place& place) {
    Patch y;
    FillPatch(place, &y, [&](int64_t row, bfloat16* to) {
      PrefetchBelow(swiglu.gate, swiglu.columns, place, row);
      PrefetchBelow(swiglu.up, swiglu.columns, place, row);
      Swiglu(swiglu, {row, place.column, place.columns}, to);
    });
    StorePatch(y, place, swiglu.y, swiglu.columns);
    QuantizePatch(operation.tiles, place, y);
  });
  return absl::OkStatus();
}

absl::Status RunOperation(const SwigluBackwardQuantize& operation) {
  const SwigluBackward& swiglu = operation.swiglu;
  ForPatches(swiglu.rows, swiglu.columns, [&](const Place& place) {
    Patch dgate;
    Patch dup;
    ClearOutside(place, &dgate);
    ClearOutside(place, &dup);
    for (int i = 0; i < place.rows; ++i) {
      const int64_t row = place.row + i;
      for (const bfloat16* const source : {swiglu.dy, swiglu.gate, swiglu.up})
        PrefetchBelow(source, swiglu.columns, place, row);
      SwigluGradients(swiglu, {row, place.column, place.columns}, dgate.x[i], dup.x[i]);
    }
    StorePatch(dgate, place, swiglu.dgate, swiglu.columns);
    StorePatch(dup, place, swiglu.dup, swiglu.columns);
    QuantizePatch(operation.dgate_tiles, place, dgate);
    QuantizePatch(operation.dup_tiles, place, dup);
  });
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
