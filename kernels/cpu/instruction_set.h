// Which variant of the vector code runs. Highway compiles every body of this folder once for each
// target; the best that the processor has runs, unless OCTAVO_CPU_ISA or a test asks for less.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo::kernels::cpu {

enum class InstructionSet {
  kBaseline,  // of every processor that the program starts on
  kSse4,
  kAvx2,  // with FMA and F16C
  kAvx512,
};

inline constexpr std::array<InstructionSet, 4> kInstructionSets = {
    InstructionSet::kBaseline, InstructionSet::kSse4, InstructionSet::kAvx2,
    InstructionSet::kAvx512};

// "baseline", "sse4", "avx2", "avx512".
absl::string_view NameOf(InstructionSet instruction_set);

// Holds vector code and oneDNN to OCTAVO_CPU_ISA, the environment variable, from the first call on:
//   baseline, sse4, avx2, avx512: that instruction set at most, and no BF16 products
//   avx512_bf16: vectors as they are, products without AMX
//   unset or empty: what the processor has
// INVALID_ARGUMENT for any other value. Must run before oneDNN's first product.
absl::Status ApplyInstructionSetLimit();

// Compiled, on this processor, and within OCTAVO_CPU_ISA.
bool IsAvailable(InstructionSet instruction_set);

// What runs now.
InstructionSet ActiveInstructionSet();

// For tests; must be available. Vector code alone: oneDNN keeps its limit.
void UseInstructionSet(InstructionSet instruction_set);
void UseBestInstructionSet();

}  // namespace octavo::kernels::cpu
