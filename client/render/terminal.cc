#include "client/render/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace octavo::client {
namespace {

constexpr int kNarrowest = 40;
constexpr int kWidest = 200;

int Columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::min<int>(std::max<int>(size.ws_col, kNarrowest), kWidest);
  }
  return 80;
}

absl::string_view Code(Color color) {
  switch (color) {
    case Color::kRed:
      return "31";
    case Color::kGreen:
      return "32";
    case Color::kYellow:
      return "33";
    case Color::kBlue:
      return "34";
    case Color::kGray:
      return "90";
    case Color::kBold:
      return "1";
  }
  return "0";
}

}  // namespace

Terminal StandardTerminal() {
  Terminal terminal;
  terminal.out = &std::cout;
  terminal.error = &std::cerr;
  const char* term = std::getenv("TERM");
  terminal.interactive =
      isatty(STDOUT_FILENO) != 0 && term != nullptr && absl::string_view(term) != "dumb";
  const char* no_color = std::getenv("NO_COLOR");
  terminal.color = terminal.interactive && (no_color == nullptr || no_color[0] == '\0');
  std::setlocale(LC_CTYPE, "");
  terminal.unicode = absl::EqualsIgnoreCase(nl_langinfo(CODESET), "UTF-8");
  terminal.columns = Columns();
  terminal.zone = absl::LocalTimeZone();
  return terminal;
}

std::string Paint(const Terminal& terminal, Color color, absl::string_view text) {
  if (!terminal.color || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", Code(color), "m", text, "\x1b[0m");
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((text[i] & 0xC0) != 0x80) {
      ++width;  // not a continuation byte
    }
  }
  return width;
}

}  // namespace octavo::client
