// Which variant of the vector code runs, and what OCTAVO_CPU_ISA does to it.
#include "kernels/cpu/instruction_set.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/instruction_sets.h"

namespace octavo::kernels::cpu {
namespace {

using testing::HasSubstr;

class InstructionSetOn : public testing_support::EveryInstructionSet {};

TEST_P(InstructionSetOn, IsWhatRuns) { EXPECT_EQ(ActiveInstructionSet(), GetParam()); }
OCTAVO_ON_EVERY_INSTRUCTION_SET(InstructionSetOn);

TEST(InstructionSet, TheBestRunsUnlessATestAsksForLess) {
  UseInstructionSet(InstructionSet::kBaseline);
  UseBestInstructionSet();
  for (const InstructionSet better : kInstructionSets)
    EXPECT_FALSE(better > ActiveInstructionSet() && IsAvailable(better)) << NameOf(better);
}

// The limit is read once a process, so each value gets its own.
void ExpectUnderLimit(const char* value, InstructionSet highest, const char* products) {
  EXPECT_EXIT(
      {
        setenv("OCTAVO_CPU_ISA", value, 1);
        auto backend = OpenCpuBackend({.memory_bytes = 1 << 20, .threads = 1});
        const bool held = backend.ok() && ActiveInstructionSet() <= highest &&
                          (*backend)->Describe().matmul.find(products) != std::string::npos;
        std::_Exit(held ? 0 : 1);
      },
      testing::ExitedWithCode(0), "")
      << value;
}

TEST(InstructionSet, OneVariableLimitsVectorsAndProducts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ExpectUnderLimit("sse4", InstructionSet::kSse4, "widened");
  ExpectUnderLimit("avx2", InstructionSet::kAvx2, "widened");
  ExpectUnderLimit("avx512", InstructionSet::kAvx512, "widened");
  ExpectUnderLimit("avx512_bf16", InstructionSet::kAvx512, "bf16");
  ExpectUnderLimit("", InstructionSet::kAvx512, "oneDNN");
}

TEST(InstructionSet, AnUnknownLimitIsRefusedByValue) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("OCTAVO_CPU_ISA", "avx1024", 1);
        const absl::Status status = OpenCpuBackend({.memory_bytes = 1 << 20}).status();
        std::fputs(std::string(status.message()).c_str(), stderr);
        std::_Exit(absl::IsInvalidArgument(status) ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "OCTAVO_CPU_ISA is \"avx1024\", must be baseline, sse4, avx2, avx512, avx512_bf16 or unset");
}

}  // namespace
}  // namespace octavo::kernels::cpu
