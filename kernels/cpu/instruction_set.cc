#include "kernels/cpu/instruction_set.h"

#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "dnnl.hpp"
#include "hwy/targets.h"

namespace octavo::kernels::cpu {
namespace {

constexpr char kVariable[] = "OCTAVO_CPU_ISA";

struct Limit {
  absl::string_view value;
  InstructionSet vectors;
  dnnl::cpu_isa products;
};
constexpr Limit kLimits[] = {
    {"baseline", InstructionSet::kBaseline, dnnl::cpu_isa::sse41},  // oneDNN has nothing below
    {"sse4", InstructionSet::kSse4, dnnl::cpu_isa::sse41},
    {"avx2", InstructionSet::kAvx2, dnnl::cpu_isa::avx2},
    {"avx512", InstructionSet::kAvx512, dnnl::cpu_isa::avx512_core},
    {"avx512_bf16", InstructionSet::kAvx512, dnnl::cpu_isa::avx512_core_bf16},
};

// 0 where Highway compiles no such variant.
int64_t TargetOf(InstructionSet instruction_set) {
  switch (instruction_set) {
    case InstructionSet::kBaseline:
      return HWY_STATIC_TARGET;
#if HWY_ARCH_X86
    case InstructionSet::kSse4:
      return HWY_TARGETS & HWY_SSE4;
    case InstructionSet::kAvx2:
      return HWY_TARGETS & HWY_AVX2;
    case InstructionSet::kAvx512:
      return HWY_TARGETS & HWY_AVX3;
#endif
    default:
      return 0;
  }
}

// The processor's own targets, read before anything limits them.
int64_t ProcessorTargets() {
  static const int64_t targets = hwy::SupportedTargets() | HWY_STATIC_TARGET;
  return targets;
}

const absl::StatusOr<InstructionSet>& HighestAllowed() {
  static const absl::StatusOr<InstructionSet> highest = []() -> absl::StatusOr<InstructionSet> {
    const char* const value = std::getenv(kVariable);
    if (value == nullptr || *value == '\0') return kInstructionSets.back();
    for (const Limit& limit : kLimits) {
      if (limit.value != value) continue;
      if (dnnl::set_max_cpu_isa(limit.products) != dnnl::status::success) {
        return absl::FailedPreconditionError(
            absl::StrCat(kVariable, " is \"", value,
                         "\": oneDNN takes no limit, because it has "
                         "been used already or is built without this choice"));
      }
      return limit.vectors;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(kVariable, " is \"", value,
                     "\", must be baseline, sse4, avx2, avx512, avx512_bf16 or unset"));
  }();
  return highest;
}

}  // namespace

absl::string_view NameOf(InstructionSet instruction_set) {
  return kLimits[static_cast<size_t>(instruction_set)].value;
}

absl::Status ApplyInstructionSetLimit() {
  static const absl::Status applied = []() -> absl::Status {
    ProcessorTargets();
    RETURN_IF_ERROR(HighestAllowed().status());
    UseBestInstructionSet();
    return absl::OkStatus();
  }();
  return applied;
}

bool IsAvailable(InstructionSet instruction_set) {
  const absl::StatusOr<InstructionSet>& highest = HighestAllowed();
  return (TargetOf(instruction_set) & ProcessorTargets()) != 0 &&
         (!highest.ok() || instruction_set <= *highest);
}

InstructionSet ActiveInstructionSet() {
  const int64_t targets = hwy::SupportedTargets();
  for (size_t i = kInstructionSets.size(); i-- > 0;)
    if ((TargetOf(kInstructionSets[i]) & targets) != 0) return kInstructionSets[i];
  return InstructionSet::kBaseline;
}

void UseInstructionSet(InstructionSet instruction_set) {
  CHECK(IsAvailable(instruction_set));
  hwy::SetSupportedTargetsForTest(TargetOf(instruction_set));
}

void UseBestInstructionSet() {
  for (size_t i = kInstructionSets.size(); i-- > 0;) {
    if (!IsAvailable(kInstructionSets[i])) continue;
    UseInstructionSet(kInstructionSets[i]);
    return;
  }
}

}  // namespace octavo::kernels::cpu
