#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/data/byte_source.h"

namespace octavo::engine {
namespace {

constexpr size_t kChunk = size_t{1} << 18;
constexpr absl::string_view kUtf8Mark = "\xEF\xBB\xBF";

absl::string_view EncodingOf(absl::string_view start) {
  const absl::string_view zeros("\0\0", 2);
  if (absl::StartsWith(start, absl::StrCat("\xFF\xFE", zeros))) return "UTF-32LE";
  if (absl::StartsWith(start, absl::StrCat(zeros, "\xFE\xFF"))) return "UTF-32BE";
  if (absl::StartsWith(start, "\xFF\xFE")) return "UTF-16LE";
  if (absl::StartsWith(start, "\xFE\xFF")) return "UTF-16BE";
  if (start.size() < 4) return "";
  if (start[0] != 0 && start[1] == 0 && start[2] != 0 && start[3] == 0) return "UTF-16LE";
  if (start[0] == 0 && start[1] != 0 && start[2] == 0 && start[3] != 0) return "UTF-16BE";
  return "";
}

}  // namespace

size_t ByteOrderMarkLength(absl::string_view start) {
  return absl::StartsWith(start, kUtf8Mark) ? kUtf8Mark.size() : 0;
}

absl::Status CheckEncoding(absl::string_view start, absl::string_view path) {
  const absl::string_view encoding = EncodingOf(start);
  if (encoding.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is written in ", encoding, ": convert it to UTF-8"));
}

absl::Status LineReader::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t size = buffer_.size();
  buffer_.resize(size + kChunk);
  const absl::StatusOr<size_t> read = source_->Read(&buffer_[size], kChunk);
  buffer_.resize(size + (read.ok() ? *read : 0));
  ended_ = !read.ok() || *read == 0;
  return read.status();
}

absl::Status LineReader::CheckStart() {
  constexpr size_t kLongestMark = 4;
  while (!ended_ && buffer_.size() < kLongestMark) RETURN_IF_ERROR(Fill());
  RETURN_IF_ERROR(CheckEncoding(buffer_, path_));
  at_ = ByteOrderMarkLength(buffer_);
  started_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> LineReader::Next(absl::string_view* line, bool* cut) {
  if (!started_) RETURN_IF_ERROR(CheckStart());
  *cut = false;
  size_t searched = 0;  // bytes of the line that hold no line end
  size_t end = std::string::npos;
  size_t kept = 0;
  while ((end = buffer_.find('\n', at_ + searched)) == std::string::npos && !ended_) {
    searched = buffer_.size() - at_;
    if (searched > kMostLineBytes) {
      // What is behind the limit is read and dropped.
      *cut = true;
      buffer_.resize(at_ + kMostLineBytes);
      searched = kMostLineBytes;
    }
    RETURN_IF_ERROR(Fill());
  }
  if (end == std::string::npos && at_ == buffer_.size()) return false;
  kept = (end == std::string::npos ? buffer_.size() : end) - at_;
  *line = absl::string_view(buffer_).substr(at_, std::min(kept, kMostLineBytes));
  *cut = *cut || kept > kMostLineBytes;
  at_ += kept + (end == std::string::npos ? 0 : 1);
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  ++number_;
  return true;
}

}  // namespace octavo::engine
