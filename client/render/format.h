// Numbers, bytes and times as people read them. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace octavo::client {

// "512 B", "1.5 GiB"; binary units, one decimal.
std::string FormatBytes(int64_t bytes);
// "950", "12.3k", "4.5M"; three significant digits.
std::string FormatCount(double count);
// "12,345,678".
std::string FormatInteger(int64_t value);
// "1.2345", or "1.23e-07" for what would lose its digits; "nan" and "inf" as they are.
std::string FormatLoss(double loss);
// "+0.123 %" of a ratio of 0.00123; the sign is always there.
std::string FormatPercent(double ratio);
// "0.4 s", "42 s", "3 min 05 s", "1 h 02 min", "2 d 03 h".
std::string FormatSpan(absl::Duration span);
// "2026-12-01 09:30:00", or "-" for an absent time.
std::string FormatTime(const google::protobuf::Timestamp& time, const absl::TimeZone& zone);

// Text from elsewhere for a terminal: control characters, which may command it, and bytes that are
// no UTF-8 become '?'.
std::string Printable(absl::string_view text);

absl::Time ToTime(const google::protobuf::Timestamp& time);

}  // namespace octavo::client
