// Tables, plots and the progress bar as they look.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_split.h"
#include "client/render/plot.h"
#include "client/render/progress.h"
#include "client/render/table.h"
#include "proto/support/metric_table.h"

namespace octavo::client {
namespace {

Terminal Plain(int columns) {
  Terminal terminal;
  terminal.columns = columns;
  return terminal;
}

Terminal Unicode(int columns) {
  Terminal terminal = Plain(columns);
  terminal.unicode = true;
  return terminal;
}

TEST(Table, AlignsColumnsAndLeavesNoBlanksAtTheEnd) {
  Table table({{"NAME"}, {"STEPS", Align::kRight}, {"NOTE"}});
  table.Add({"a", "5", ""});
  table.Add({"größer", "1000", "x"});
  EXPECT_EQ(table.Render(),
            "NAME    STEPS  NOTE\n"
            "a           5\n"
            "größer   1000  x\n");
}

TEST(Table, EscapeCodesTakeNoColumns) {
  Table table({{""}, {""}});
  table.Add({"\x1b[31mred\x1b[0m", "1"});
  table.Add({"plain", "2"});
  EXPECT_EQ(table.Render(), "\x1b[31mred\x1b[0m    1\nplain  2\n");
}

Plot Line() {
  return {.title = "loss",
          .y_format = "%.1f",
          .series = {{.name = "a", .ascii = '*', .points = {{1, 4}, {2, 3}, {3, 2}, {4, 1}}}},
          .height = 4};
}

TEST(Plot, DrawsAsciiWithLabelsAxisAndLegend) {
  EXPECT_EQ(RenderPlot(Plain(22), Line()),
            "loss\n"
            "4.0 |*****\n"
            "    |     *****\n"
            "    |          *****\n"
            "1.0 |               *\n"
            "    +----------------\n"
            "     1         step 4\n"
            "     ** a\n");
}

TEST(Plot, DrawsBrailleDots) {
  EXPECT_EQ(RenderPlot(Unicode(16), Line()),
            "loss\n"
            "4.0 │⠉⠢⡀\n"
            "    │  ⠈⠒⢄⡀\n"
            "    │     ⠈⠢⢄\n"
            "1.0 │        ⠑⢄\n"
            "    └──────────\n"
            "     1   step 4\n"
            "     ⠶⠶ a\n");
}

TEST(Plot, NoLineIsWiderThanTheTerminal) {
  for (const int columns : {40, 80, 133}) {
    for (const Terminal& terminal : {Plain(columns), Unicode(columns)}) {
      for (absl::string_view line : absl::StrSplit(RenderPlot(terminal, Line()), '\n')) {
        EXPECT_LE(DisplayWidth(line), columns) << line;
      }
    }
  }
}

TEST(Plot, LeavesOutWhatIsNotFiniteAndSaysWhenNothingIsLeft) {
  Plot plot = Line();
  plot.series[0].points = {{1, NAN}, {2, INFINITY}};
  EXPECT_EQ(RenderPlot(Plain(40), plot), "loss: no points\n");
  plot.series[0].points.push_back({3, 7});
  EXPECT_NE(RenderPlot(Plain(40), plot).find('*'), std::string::npos);
}

TEST(Plot, AConstantCurveIsDrawn) {
  Plot plot = Line();
  plot.series[0].points = {{1, 2}, {2, 2}, {3, 2}};
  EXPECT_NE(RenderPlot(Plain(40), plot).find("****"), std::string::npos);
}

TEST(Plot, TheZeroLineIsInside) {
  Plot plot = Line();
  plot.zero_line = true;
  plot.y_format = "%+.1f";
  const std::string text = RenderPlot(Plain(22), plot);
  EXPECT_NE(text.find("+0.0 |...."), std::string::npos) << text;
}

TEST(Plot, TwoCurvesAreToldApartWithoutColours) {
  Plot plot = Line();
  plot.series.push_back({.name = "b", .ascii = 'o', .points = {{1, 1}, {4, 4}}});
  const std::string text = RenderPlot(Unicode(40), plot);
  EXPECT_NE(text.find("** a   oo b"), std::string::npos) << text;
}

TEST(Plot, CurvesHaveColoursOnlyWhereTheyAreAllowed) {
  Terminal terminal = Unicode(40);
  EXPECT_EQ(RenderPlot(terminal, Line()).find('\x1b'), std::string::npos);
  terminal.color = true;
  EXPECT_NE(RenderPlot(terminal, Line()).find('\x1b'), std::string::npos);
}

TEST(DisplayWidth, CountsCodePointsOutsideEscapeCodes) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("größe"), 5);
  EXPECT_EQ(DisplayWidth("\x1b[31m█\x1b[0m "), 2);
}

using ::testing::HasSubstr;

class ProgressTest : public testing::Test {
 protected:
  void Add(absl::string_view name, int64_t step, double value) {
    v1::MetricPoint point;
    point.set_name(std::string(name));
    point.set_step(step);
    point.set_value(value);
    point.set_time_unix_ms(2000 * step);
    progress_.Add(point);
  }

  Progress progress_{100};
};

TEST_F(ProgressTest, IsEmptyAtFirst) {
  EXPECT_EQ(progress_.Line(), "step 0/100");
  EXPECT_EQ(progress_.Remaining(), absl::InfiniteDuration());
}

TEST_F(ProgressTest, EstimatesFromThePace) {
  Add(metric::kLoss, 10, 1.5);
  Add(metric::kLoss, 20, 1.25);
  EXPECT_EQ(progress_.Remaining(), absl::Seconds(160));  // 80 steps at 2 s
}

TEST_F(ProgressTest, ARestartFromACheckpointStartsTheEstimateAnew) {
  Add(metric::kLoss, 49, 1);
  Add(metric::kLoss, 50, 1);
  Add(metric::kLoss, 21, 1);
  EXPECT_EQ(progress_.step(), 21);
  EXPECT_EQ(progress_.Remaining(), absl::InfiniteDuration());
}

TEST_F(ProgressTest, ShowsNoOldLossForAStepThatWasNotFinite) {
  Add(metric::kLoss, 1, 1.5);
  Add(metric::kNonfiniteSteps, 1, 0);
  EXPECT_THAT(progress_.Line(), HasSubstr("loss 1.5"));
  Add(metric::kNonfiniteSteps, 2, 1);  // such a step has no loss
  EXPECT_EQ(progress_.Line(), "step 2/100  not finite, not applied  left 3 min 16 s");
  Add(metric::kLoss, 3, 1.25);
  Add(metric::kNonfiniteSteps, 3, 1);
  EXPECT_THAT(progress_.Line(), HasSubstr("loss 1.25"));
}

TEST_F(ProgressTest, ShowsEveryFigureOn80Columns) {
  Add(metric::kLoss, 49, 1.5);
  Add(metric::kLoss, 50, 1.25);
  Add(metric::kTokensPerSecond, 50, 12345);
  Add(metric::kProbeRatio, 50, 0.00123);
  EXPECT_EQ(progress_.Bar(Plain(80)),
            "####....  50%  50/100  loss 1.2500  12.3k tok/s  left 1 min 40 s  fp8 +0.123 %");
}

TEST_F(ProgressTest, LeavesOutWhatDoesNotFit) {
  Add(metric::kLoss, 49, 1.5);
  Add(metric::kLoss, 50, 1.25);
  Add(metric::kTokensPerSecond, 50, 12345);
  for (const int columns : {40, 60, 80})
    EXPECT_LT(DisplayWidth(progress_.Bar(Plain(columns))), columns);
  EXPECT_EQ(progress_.Bar(Plain(40)), "###...  50%  50/100  loss 1.2500");
}

TEST_F(ProgressTest, DrawsPartsOfACharacter) {
  Add(metric::kLoss, 33, 1.5);
  EXPECT_EQ(progress_.Bar(Unicode(80)), "██▋       33%  33/100  loss 1.5000");
}

TEST_F(ProgressTest, TheEndIsFull) {
  Add(metric::kLoss, 99, 1);
  Add(metric::kLoss, 100, 1);
  EXPECT_EQ(progress_.Bar(Unicode(80)), "████████ 100%  100/100  loss 1.0000");
}

}  // namespace
}  // namespace octavo::client
