// What every backend demands of an operation before it runs: INVALID_ARGUMENT names the operation,
// the field and its value. Values inside tensors (ids, positions) are not looked at here.
#pragma once

#include "absl/status/status.h"
#include "kernels/operation.h"

namespace octavo::kernels {

absl::Status Check(const Operation& operation);

}  // namespace octavo::kernels
