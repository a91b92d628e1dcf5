#include "client/render/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::client {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // In [0, 1].
  double Place(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

bool IsFinite(const Point& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

enum class Glyphs { kAscii, kBraille };

// Braille curves can be told apart by colour only.
Glyphs ChooseGlyphs(const Terminal& terminal, const Plot& plot) {
  const bool distinct = terminal.color || plot.series.size() == 1;
  return terminal.unicode && distinct ? Glyphs::kBraille : Glyphs::kAscii;
}

// Characters of the drawing, each made of dots: one in ASCII, 2 by 4 in braille.
class Canvas {
 public:
  struct Size {
    int columns;
    int lines;
  };
  Canvas(const Terminal& terminal, Glyphs glyphs, Size size)
      : terminal_(terminal),
        braille_(glyphs == Glyphs::kBraille),
        columns_(size.columns),
        lines_(size.lines),
        cells_(columns_ * lines_) {}

  int dots_x() const { return columns_ * (braille_ ? 2 : 1); }
  int dots_y() const { return lines_ * (braille_ ? 4 : 1); }

  // (0, 0) is at the lower left.
  void Set(int x, int y, const Series& series) {
    y = dots_y() - 1 - y;
    const int wide = braille_ ? 2 : 1;
    const int high = braille_ ? 4 : 1;
    Cell& cell = cells_[(y / high) * columns_ + x / wide];
    // Bits of the dots in U+2800 + bits: https://www.unicode.org/charts/PDF/U2800.pdf
    constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell.dots |= kBits[y % high][x % wide];
    cell.series = &series;
  }

  std::string Line(int line) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[line * columns_ + column];
      if (cell.series == nullptr) {
        text += ' ';
      } else {
        text += Paint(terminal_, cell.series->color, Character(cell));
      }
    }
    return std::string(absl::StripTrailingAsciiWhitespace(text));
  }

 private:
  struct Cell {
    int dots = 0;
    const Series* series = nullptr;
  };

  std::string Character(const Cell& cell) const {
    if (!braille_) return std::string(1, cell.series->ascii);
    const int code = 0x2800 + cell.dots;  // three bytes of UTF-8
    return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
            static_cast<char>(0x80 | (code & 0x3F))};
  }

  const Terminal& terminal_;
  const bool braille_;
  const int columns_;
  const int lines_;
  std::vector<Cell> cells_;
};

// Mean of the points of each column of dots; NaN where there are none.
std::vector<double> MeansByColumn(const Series& series, const Range& x_range, int columns) {
  std::vector<double> sums(columns, 0);
  std::vector<int> counts(columns, 0);
  for (const Point& point : series.points) {
    if (!IsFinite(point)) continue;
    const int column = static_cast<int>(std::lround(x_range.Place(point.x) * (columns - 1)));
    sums[column] += point.y;
    ++counts[column];
  }
  for (int i = 0; i < columns; ++i) {
    sums[i] = counts[i] > 0 ? sums[i] / counts[i] : std::numeric_limits<double>::quiet_NaN();
  }
  return sums;
}

// Connects what neighbours it has: the vertical run between two columns is split between them.
void DrawCurve(const std::vector<double>& means, const Series& series, const Range& y_range,
               Canvas* canvas) {
  int last_x = -1;
  int last_y = 0;
  for (int x = 0; x < static_cast<int>(means.size()); ++x) {
    if (std::isnan(means[x])) continue;
    const int y = static_cast<int>(std::lround(y_range.Place(means[x]) * (canvas->dots_y() - 1)));
    const int steps = last_x < 0 ? 0 : std::max(x - last_x, std::abs(y - last_y));
    for (int step = 1; step < steps; ++step) {
      canvas->Set(last_x + (x - last_x) * step / steps, last_y + (y - last_y) * step / steps,
                  series);
    }
    canvas->Set(x, y, series);
    last_x = x;
    last_y = y;
  }
}

struct Frame {
  Glyphs glyphs = Glyphs::kAscii;
  std::vector<std::string> labels;  // one per line, of equal width
  Range x;
  Range y;
};

std::string Label(const Plot& plot, double value) {
  const auto format = absl::ParsedFormat<'f'>::New(plot.y_format);
  return format == nullptr ? absl::StrCat(value) : absl::StrFormat(*format, value);
}

// Labels at the top, the middle and the bottom.
std::vector<std::string> Labels(const Plot& plot, const Range& y_range) {
  std::vector<std::string> labels(plot.height);
  labels.front() = Label(plot, y_range.high);
  labels.back() = Label(plot, y_range.low);
  if (plot.height >= 5 && plot.height % 2 == 1) {
    labels[plot.height / 2] = Label(plot, (y_range.low + y_range.high) / 2);
  }
  size_t width = 0;
  for (const std::string& label : labels) width = std::max(width, label.size());
  for (std::string& label : labels) label.insert(0, width - label.size(), ' ');
  return labels;
}

std::string AxisAndLegend(const Terminal& terminal, const Plot& plot, const Frame& frame,
                          int columns) {
  const std::string margin(frame.labels.front().size() + 1, ' ');
  const char* corner = terminal.unicode ? "└" : "+";
  const char* bar = terminal.unicode ? "─" : "-";
  std::string text = margin + corner;
  for (int i = 0; i < columns; ++i) text += bar;
  const std::string first = absl::StrFormat("%.0f", frame.x.low);
  const std::string last = absl::StrFormat("step %.0f", frame.x.high);
  const int gap = columns - static_cast<int>(first.size() + last.size());
  absl::StrAppend(&text, "\n", margin, " ", first, std::string(std::max(gap, 1), ' '), last, "\n");
  std::string legend;
  for (const Series& series : plot.series) {
    const std::string sign = frame.glyphs == Glyphs::kBraille ? "⠶⠶" : std::string(2, series.ascii);
    absl::StrAppend(&legend, legend.empty() ? "" : "   ", Paint(terminal, series.color, sign), " ",
                    series.name);
  }
  return absl::StrCat(text, margin, " ", legend, "\n");
}

}  // namespace

std::string RenderPlot(const Terminal& terminal, const Plot& plot) {
  Frame frame{.glyphs = ChooseGlyphs(terminal, plot), .labels = {}, .x = {}, .y = {}};
  for (const Series& series : plot.series) {
    for (const Point& point : series.points) {
      if (!IsFinite(point)) continue;
      frame.x.Include(point.x);
      frame.y.Include(point.y);
    }
  }
  if (frame.x.empty()) return absl::StrCat(plot.title, ": no points\n");
  if (plot.zero_line) frame.y.Include(0);
  frame.labels = Labels(plot, frame.y);
  const int columns = std::max(terminal.columns - static_cast<int>(frame.labels[0].size()) - 3, 10);
  Canvas canvas(terminal, frame.glyphs, {.columns = columns, .lines = plot.height});
  const Series zero = {.name = "", .color = Color::kGray, .ascii = '.', .points = {}};
  if (plot.zero_line) {
    DrawCurve(std::vector<double>(canvas.dots_x(), 0), zero, frame.y, &canvas);
  }
  for (const Series& series : plot.series) {
    DrawCurve(MeansByColumn(series, frame.x, canvas.dots_x()), series, frame.y, &canvas);
  }
  std::string text = absl::StrCat(Paint(terminal, Color::kBold, plot.title), "\n");
  for (int line = 0; line < plot.height; ++line) {
    absl::StrAppend(&text, frame.labels[line], " ", terminal.unicode ? "│" : "|", canvas.Line(line),
                    "\n");
  }
  return text + AxisAndLegend(terminal, plot, frame, columns);
}

}  // namespace octavo::client
