#include "client/render/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace octavo::client {
namespace {

TEST(Format, BytesHaveBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.0 MiB");  // never 1024.0 KiB
  EXPECT_EQ(FormatBytes(int64_t{12} << 30), "12.0 GiB");
  EXPECT_EQ(FormatBytes(INT64_MAX), "8.0 EiB");
}

TEST(Format, CountsKeepThreeDigits) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(7), "7");
  EXPECT_EQ(FormatCount(7.25), "7.25");
  EXPECT_EQ(FormatCount(999.4), "999");
  EXPECT_EQ(FormatCount(999.6), "1.00k");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(4.56e6), "4.56M");
}

TEST(Format, IntegersAreGroupedByThree) {
  EXPECT_EQ(FormatInteger(0), "0");
  EXPECT_EQ(FormatInteger(999), "999");
  EXPECT_EQ(FormatInteger(1000), "1,000");
  EXPECT_EQ(FormatInteger(134515008), "134,515,008");
  EXPECT_EQ(FormatInteger(-100), "-100");
  EXPECT_EQ(FormatInteger(-1234567), "-1,234,567");
}

TEST(Format, LossesKeepTheirDigits) {
  EXPECT_EQ(FormatLoss(2.30258), "2.3026");
  EXPECT_EQ(FormatLoss(1.5e-7), "1.50e-07");
  EXPECT_EQ(FormatLoss(NAN), "nan");
}

TEST(Format, PercentShowsItsSign) {
  EXPECT_EQ(FormatPercent(0.00123), "+0.123 %");
  EXPECT_EQ(FormatPercent(-0.5), "-50.000 %");
}

TEST(Format, SpansHaveTwoUnitsAtMost) {
  EXPECT_EQ(FormatSpan(absl::Milliseconds(420)), "0.4 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(42)), "42 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(59.7)), "1 min 00 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(185)), "3 min 05 s");
  EXPECT_EQ(FormatSpan(absl::Minutes(62)), "1 h 02 min");
  EXPECT_EQ(FormatSpan(absl::Hours(51)), "2 d 03 h");
  EXPECT_EQ(FormatSpan(absl::Seconds(-3)), "0.0 s");  // clocks of two machines
  EXPECT_EQ(FormatSpan(absl::InfiniteDuration()), "-");
}

TEST(Format, AnAbsentTimeIsADash) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(FormatTime(time, absl::UTCTimeZone()), "-");
  time.set_seconds(1764547200);
  EXPECT_EQ(FormatTime(time, absl::UTCTimeZone()), "2025-12-01 00:00:00");
}

TEST(Format, TextFromElsewhereCannotCommandTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\nc\td"), "a?[2Jb?c\td");
  EXPECT_EQ(Printable("größe"), "größe");
  EXPECT_EQ(Printable("a\xC2\x9B"
                      "31mb\xC2\xA0"
                      "c"),
            "a?31mb\xC2\xA0"
            "c")
      << "U+009B is ESC [";
  EXPECT_EQ(Printable("a\x9B\xFF"
                      "b\xE2\x82"),
            "a??b?")
      << "no UTF-8";
  EXPECT_EQ(Printable("日本 😀"), "日本 😀");
}

}  // namespace
}  // namespace octavo::client
