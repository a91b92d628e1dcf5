// Aligned columns of text.
#pragma once

#include <string>
#include <vector>

namespace octavo::client {

enum class Align { kLeft, kRight };

// Columns are as wide as their widest cell, two blanks apart. Cells may hold escape codes. No
// blanks at the ends of lines.
class Table {
 public:
  // An empty title everywhere: no header line.
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void Add(std::vector<std::string> cells);
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace octavo::client
