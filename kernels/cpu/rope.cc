// Formula: kernels/ops/attention.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include "kernels/cpu/operations.h"
#include "kernels/cpu/rope_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// All heads of one token.
void RopeToken(const Rope& op, int64_t token) {
  for (int64_t head = 0; head < op.heads; ++head) {
    bfloat16* const x = HeadOf(op, token, head);
    RotateHead(op, token, x, x);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {
HWY_EXPORT(RopeToken);
}  // namespace

absl::Status RunOperation(const Rope& operation) {
#pragma omp parallel for schedule(static)
  for (int64_t token = 0; token < operation.tokens; ++token)
    HWY_DYNAMIC_DISPATCH(RopeToken)(operation, token);
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
