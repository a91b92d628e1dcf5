#include "client/render/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/render/terminal.h"

namespace octavo::client {

void Table::Add(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<std::vector<std::string>> lines = rows_;
  const bool titled = std::any_of(titles.begin(), titles.end(), [](auto& t) { return !t.empty(); });
  if (titled) lines.insert(lines.begin(), titles);

  std::vector<int> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - DisplayWidth(line[i]), ' ');
      if (i > 0) row += "  ";
      row += columns_[i].align == Align::kRight ? blanks + line[i] : line[i] + blanks;
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(row), "\n");
  }
  return text;
}

}  // namespace octavo::client
