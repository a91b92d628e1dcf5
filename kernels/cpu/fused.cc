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
    for (int row = 0; row < place.rows; ++row) {
      SwigluGradients(swiglu, {place.row + row, place.column, place.columns}, dgate.x[row],
                      dup.x[row]);
    }
    StorePatch(dgate, place, swiglu.dgate, swiglu.columns);
    StorePatch(dup, place, swiglu.dup, swiglu.columns);
    QuantizePatch(operation.dgate_tiles, place, dgate);
    QuantizePatch(operation.dup_tiles, place, dup);
  });
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
