#include "client/render/format.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace octavo::client {

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (std::abs(static_cast<double>(bytes)) < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would print as 1024.0.
  while (std::abs(value) >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatCount(double count) {
  if (!std::isfinite(count)) return absl::StrCat(count);
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (std::abs(count) >= 999.5 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0 && count == std::floor(count)) return absl::StrFormat("%.0f", count);
  const double size = std::abs(count);
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f%s", decimals, count, kUnits[unit]);
}

std::string FormatInteger(int64_t value) {
  std::string digits = absl::StrCat(value);
  const int first = value < 0 ? 1 : 0;
  for (int i = static_cast<int>(digits.size()) - 3; i > first; i -= 3)
    digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

std::string FormatLoss(double loss) {
  if (std::isfinite(loss) && loss != 0 && (std::abs(loss) < 1e-3 || std::abs(loss) >= 1e5)) {
    return absl::StrFormat("%.2e", loss);
  }
  return absl::StrFormat("%.4f", loss);
}

std::string FormatPercent(double ratio) {
  if (!std::isfinite(ratio)) return absl::StrFormat("%f", ratio);
  return absl::StrFormat("%+.3f %%", ratio * 100);
}

std::string FormatSpan(absl::Duration span) {
  if (span < absl::ZeroDuration()) span = absl::ZeroDuration();
  if (span == absl::InfiniteDuration()) return "-";
  const double seconds = absl::ToDoubleSeconds(span);
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%d d %02d h", whole / 86400, whole / 3600 % 24);
}

namespace {

// Whether a terminal only shows the character: neither a control character, U+007F to U+009F
// included (U+009B begins a command as ESC [ does), nor -1 for bytes that are no UTF-8.
bool IsHarmless(int32_t code_point) {
  return code_point == '\t' || (code_point >= 0x20 && code_point < 0x7F) || code_point > 0x9F;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text, at);
    absl::StrAppend(&printable,
                    IsHarmless(character.code_point) ? text.substr(at, character.length) : "?");
    at += character.length;
  }
  return printable;
}

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

std::string FormatTime(const google::protobuf::Timestamp& time, const absl::TimeZone& zone) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(time), zone);
}

}  // namespace octavo::client
