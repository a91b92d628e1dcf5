// Cuts the elements out of one JSON array that spans lines, so that a file of one array is read
// like rows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

class ArraySplitter {
 public:
  using OnRow = absl::FunctionRef<absl::Status(absl::string_view row, int64_t line)>;

  explicit ArraySplitter(std::string path) : path_(std::move(path)) {}

  // `line` is line number `number` of the file; the first begins with [.
  absl::Status Add(absl::string_view line, int64_t number, OnRow on_row);
  absl::Status Finish() const;

 private:
  enum class State { kBefore, kFirst, kElement, kEnded };
  absl::Status Step(char c, int64_t number, int64_t column, OnRow on_row);
  absl::Status EndElement(bool array_ends, int64_t number, int64_t column, OnRow on_row);
  absl::Status Error(int64_t number, int64_t column, absl::string_view what) const;

  std::string path_;
  State state_ = State::kBefore;
  std::string element_;
  int64_t element_line_ = 0;
  int64_t last_line_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace octavo::engine
