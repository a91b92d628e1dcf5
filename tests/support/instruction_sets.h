// Tests that run once on each variant of the CPU's vector code:
//
//   class NormOn : public testing_support::EveryInstructionSet {};
//   TEST_P(NormOn, ...) { ... }
//   OCTAVO_ON_EVERY_INSTRUCTION_SET(NormOn);
//
// A variant that this processor lacks, or that OCTAVO_CPU_ISA excludes, is skipped by name.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/instruction_set.h"

namespace octavo::testing_support {

inline std::string WhyAbsent(kernels::cpu::InstructionSet instruction_set) {
  return absl::StrCat("skipped: ", kernels::cpu::NameOf(instruction_set),
                      " is not on this processor, or OCTAVO_CPU_ISA excludes it");
}

class EveryInstructionSet : public ::testing::TestWithParam<kernels::cpu::InstructionSet> {
 protected:
  void SetUp() override {
    if (!kernels::cpu::IsAvailable(GetParam())) GTEST_SKIP() << WhyAbsent(GetParam());
    kernels::cpu::UseInstructionSet(GetParam());
  }
  void TearDown() override { kernels::cpu::UseBestInstructionSet(); }
};

inline std::string NameOfParameter(
    const ::testing::TestParamInfo<kernels::cpu::InstructionSet>& parameter) {
  return std::string(kernels::cpu::NameOf(parameter.param));
}

}  // namespace octavo::testing_support

#define OCTAVO_ON_EVERY_INSTRUCTION_SET(Suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Cpu, Suite,                                                    \
                           ::testing::ValuesIn(::octavo::kernels::cpu::kInstructionSets), \
                           ::octavo::testing_support::NameOfParameter)
