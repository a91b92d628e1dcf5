// The bytes of a file, decompressed when it starts with the magic number of gzip or zstd, whatever
// its name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // `size` bytes into `buffer`, fewer only at the end, where it answers 0. DATA_LOSS for a stream
  // that is cut off or broken, so a part of a file never passes for the whole.
  virtual absl::StatusOr<size_t> Read(char* buffer, size_t size) = 0;
};

// Whether the first bytes of a file are those of gzip or zstd.
bool IsCompressed(absl::string_view start);

// Messages name `path`. INVALID_ARGUMENT for bzip2 and xz, by name, and for zstd that needs a
// window above 128 MiB.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path);

// Lines of a source, without their end ("\n" or "\r\n") and without a byte order mark.
class LineReader {
 public:
  LineReader(std::unique_ptr<ByteSource> source, std::string path)
      : source_(std::move(source)), path_(std::move(path)) {}

  static constexpr size_t kMostLineBytes = size_t{64} << 20;

  // False at the end. The line lives until the next call. Of a line above `kMostLineBytes` only the
  // first bytes are kept, and `cut` is set.
  absl::StatusOr<bool> Next(absl::string_view* line, bool* cut);

  // Number of the last line, from 1.
  int64_t number() const { return number_; }

 private:
  absl::Status Fill();
  absl::Status CheckStart();

  std::unique_ptr<ByteSource> source_;
  std::string path_;
  std::string buffer_;
  size_t at_ = 0;  // first byte of buffer_ that is not handed out
  bool ended_ = false;
  bool started_ = false;
  int64_t number_ = 0;
};

// INVALID_ARGUMENT when the text starts with the byte order mark of UTF-16 or UTF-32 or, having
// none, with zero bytes as those encodings write ASCII; names the encoding.
absl::Status CheckEncoding(absl::string_view start, absl::string_view path);

// Length of the UTF-8 byte order mark that `start` begins with; 0: none.
size_t ByteOrderMarkLength(absl::string_view start);

}  // namespace octavo::engine
