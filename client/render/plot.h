// Curves as text: braille dots (2 by 4 in a character), or ASCII where Unicode, or colours for more
// than one curve, are missing.
#pragma once

#include <string>
#include <vector>

#include "client/render/terminal.h"

namespace octavo::client {

struct Point {
  double x = 0;
  double y = 0;
};

struct Series {
  std::string name;
  Color color = Color::kBlue;
  char ascii = '*';           // draws the curve in ASCII
  std::vector<Point> points;  // by rising x; values that are not finite are left out
};

struct Plot {
  std::string title;
  std::string y_format = "%.3f";  // of the labels at the left, for absl::StrFormat
  std::vector<Series> series;     // the later covers the earlier where both want a character
  int height = 10;                // lines between title and x axis
  bool zero_line = false;         // y = 0 is always inside and drawn
};

// `columns` of the terminal wide. A title line, the curves with labels, an x axis and a legend.
// Many points in one column of dots are drawn as their mean.
std::string RenderPlot(const Terminal& terminal, const Plot& plot);

}  // namespace octavo::client
