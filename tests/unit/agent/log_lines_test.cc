#include "worker/agent/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

#define REPLACED "\xEF\xBF\xBD"

TEST(RepairUtf8, KeepsWhatIsWellFormed) {
  const std::string text = "plain, \xC3\xBC, \xE2\x82\xAC, \xF0\x9F\x9A\x80";
  EXPECT_EQ(RepairUtf8(text), text);
}

TEST(RepairUtf8, ReplacesEveryByteThatIsNot) {
  EXPECT_EQ(RepairUtf8("a\xFFz"), "a" REPLACED "z");
  EXPECT_EQ(RepairUtf8("a\xC3"), "a" REPLACED) << "cut short";
  EXPECT_EQ(RepairUtf8("\xC0\xAF"), REPLACED REPLACED) << "overlong";
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), REPLACED REPLACED REPLACED) << "surrogate";
  EXPECT_EQ(RepairUtf8("\xF4\x90\x80\x80"), REPLACED REPLACED REPLACED REPLACED)
      << "beyond U+10FFFF";
  EXPECT_EQ(RepairUtf8(absl::string_view("\0", 1)), REPLACED);
}

TEST(LineCutter, LinesMayComeInPieces) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Add("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(cutter.Add("o\n\nthree"), ElementsAre("two", ""));
  EXPECT_THAT(cutter.Flush(), ElementsAre("three"));
  EXPECT_THAT(cutter.Flush(), IsEmpty());
}

TEST(LineCutter, ACarriageReturnEndsALineToo) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Add("10%\r20%\r\ndone\r\n"), ElementsAre("10%", "20%", "done"));
}

TEST(LineCutter, ALongLineIsCutMarkedAndBounded) {
  LineCutter cutter;
  for (int i = 0; i < 100; ++i) EXPECT_THAT(cutter.Add(std::string(1000, 'x')), IsEmpty());
  const std::vector<std::string> lines = cutter.Add("\nnext\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LE(lines[0].size(), kMaxLineBytes);
  EXPECT_THAT(lines[0], EndsWith(" [cut: 91872 more bytes]"));
  EXPECT_EQ(lines[1], "next");
}

TEST(LineCutter, ALineThatGrowsByRepairStaysBoundedAndWellFormed) {
  LineCutter cutter;
  const std::vector<std::string> lines = cutter.Add(std::string(8000, '\xFF') + "\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_LE(lines[0].size(), kMaxLineBytes);
  EXPECT_EQ(RepairUtf8(lines[0]), lines[0]);
}

}  // namespace
}  // namespace octavo::agent
