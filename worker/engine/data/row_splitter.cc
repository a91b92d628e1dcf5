#include "worker/engine/data/row_splitter.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/data/byte_source.h"

namespace octavo::engine {

absl::Status ArraySplitter::Error(int64_t number, int64_t column, absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ":", number, ":", column, ": the array ", what));
}

absl::Status ArraySplitter::Add(absl::string_view line, int64_t number, OnRow on_row) {
  last_line_ = number;
  for (size_t i = 0; i < line.size(); ++i) {
    RETURN_IF_ERROR(Step(line[i], number, static_cast<int64_t>(i) + 1, on_row));
  }
  if (!element_.empty()) element_.push_back('\n');
  return absl::OkStatus();
}

absl::Status ArraySplitter::Step(char c, int64_t number, int64_t column, OnRow on_row) {
  const bool blank = absl::ascii_isspace(static_cast<unsigned char>(c));
  if (state_ == State::kEnded) {
    return blank ? absl::OkStatus() : Error(number, column, "is followed by other text");
  }
  if (state_ == State::kBefore) {
    if (c == '[') state_ = State::kFirst;
    return absl::OkStatus();
  }
  if (element_.empty() && blank) return absl::OkStatus();
  if (!in_string_ && depth_ == 0 && (c == ',' || c == ']')) {
    return EndElement(c == ']', number, column, on_row);
  }
  if (element_.empty()) element_line_ = number;
  element_.push_back(c);
  if (element_.size() > LineReader::kMostLineBytes) {
    return Error(element_line_, 1,
                 absl::StrCat("has an element above ", LineReader::kMostLineBytes, " bytes"));
  }
  if (in_string_) {
    if (!escaped_ && c == '"') in_string_ = false;
    escaped_ = !escaped_ && c == '\\';
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
  }
  return absl::OkStatus();
}

absl::Status ArraySplitter::EndElement(bool array_ends, int64_t number, int64_t column,
                                       OnRow on_row) {
  const bool may_be_empty = array_ends && state_ == State::kFirst;
  state_ = array_ends ? State::kEnded : State::kElement;
  if (element_.empty()) {
    return may_be_empty ? absl::OkStatus() : Error(number, column, "has a comma too much");
  }
  const absl::Status status = on_row(element_, element_line_);
  element_.clear();
  return status;
}

absl::Status ArraySplitter::Finish() const {
  if (state_ == State::kEnded) return absl::OkStatus();
  return Error(last_line_, 1, "is not closed: the file is cut off");
}

}  // namespace octavo::engine
