// Where text goes and what may be written there.
#pragma once

#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace octavo::client {

struct Terminal {
  std::ostream* out = nullptr;    // what was asked for
  std::ostream* error = nullptr;  // everything else
  bool interactive = false;       // `out` is a terminal: lines may be redrawn
  bool color = false;             // escape codes for colours may be written to `out`
  bool unicode = false;           // else ASCII
  int columns = 80;
  absl::TimeZone zone = absl::UTCTimeZone();
};

// Standard output and error, the terminal's width, the locale, NO_COLOR (https://no-color.org) and
// TERM=dumb.
Terminal StandardTerminal();

enum class Color { kRed, kGreen, kYellow, kBlue, kGray, kBold };

// The text between the escape codes of the colour, or as it is without colours.
std::string Paint(const Terminal& terminal, Color color, absl::string_view text);

// Columns that UTF-8 text takes, with one per code point and none for escape codes. Exact for what
// this program draws.
int DisplayWidth(absl::string_view text);

}  // namespace octavo::client
