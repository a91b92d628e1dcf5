#include "worker/engine/data/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace octavo::engine {
namespace {

constexpr size_t kCompressedChunk = size_t{1} << 16;
constexpr int kLargestZstdWindowLog = 27;  // what `zstd --long` writes, and zstd's own default
constexpr size_t kFrameStart = 6;          // bytes up to the window in a frame's header

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

class PlainSource final : public ByteSource {
 public:
  PlainSource(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    const size_t read = std::fread(buffer, 1, size, file_.get());
    if (read < size && std::ferror(file_.get()) != 0) return ErrnoStatus(errno, "read", path_);
    return read;
  }

 private:
  File file_;
  std::string path_;
};

absl::Status Cut(absl::string_view path, absl::string_view format) {
  return absl::DataLossError(
      absl::StrCat(path, " ends inside its ", format, " stream: copy it again"));
}

absl::Status Broken(absl::string_view path, absl::string_view format, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is a broken ", format, " file: ", what));
}

class GzipSource final : public ByteSource {
 public:
  GzipSource(File file, const std::string& path) : file_(std::move(file), path), path_(path) {
    constexpr int kGzipOnly = 16;
    CHECK(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK);
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    stream_.avail_out = static_cast<uInt>(std::min(size, size_t{1} << 30));
    const size_t wanted = stream_.avail_out;
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) RETURN_IF_ERROR(Fill());
      if (stream_.avail_in == 0) {
        if (in_member_) return Cut(path_, "gzip");
        break;
      }
      if (!in_member_) {
        ASSIGN_OR_RETURN(const bool another, StartMember());
        if (!another) continue;
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        in_member_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Broken(path_, "gzip", stream_.msg != nullptr ? stream_.msg : "bad data");
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  absl::Status Fill() {
    ASSIGN_OR_RETURN(const size_t read, file_.Read(input_.data(), input_.size()));
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(read);
    return absl::OkStatus();
  }

  // False for a zero byte, which pads files behind their last member.
  absl::StatusOr<bool> StartMember() {
    if (started_ && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
      padded_ = true;
      return false;
    }
    if (padded_) return Broken(path_, "gzip", "bytes follow the padding behind its last member");
    CHECK(inflateReset(&stream_) == Z_OK);
    started_ = in_member_ = true;
    return true;
  }

  PlainSource file_;
  std::string path_;
  z_stream stream_ = {};
  std::vector<char> input_ = std::vector<char>(kCompressedChunk);
  bool started_ = false;
  bool in_member_ = false;
  bool padded_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  ZstdSource(File file, const std::string& path)
      : file_(std::move(file), path), path_(path), context_(ZSTD_createDCtx()) {
    CHECK(context_ != nullptr);
    CHECK(!ZSTD_isError(
        ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kLargestZstdWindowLog)));
  }
  ~ZstdSource() override { ZSTD_freeDCtx(context_); }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    ZSTD_outBuffer out = {buffer, size, 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !output_pending_) {
        ASSIGN_OR_RETURN(const size_t read, file_.Read(input_.data(), input_.size()));
        if (read == 0) {
          if (inside_frame_) return Cut(path_, "zstd");
          break;
        }
        in_ = {input_.data(), read, 0};
      }
      if (!inside_frame_)
        frame_start_.assign(input_.data() + in_.pos, std::min(in_.size - in_.pos, kFrameStart));
      // 0 says that a frame ended and all of it was handed out.
      const size_t hint = ZSTD_decompressStream(context_, &out, &in_);
      if (ZSTD_isError(hint)) return ErrorOf(hint);
      inside_frame_ = hint != 0;
      output_pending_ = hint != 0 && out.pos == out.size;
    }
    return out.pos;
  }

 private:
  absl::Status ErrorOf(size_t error) const {
    if (ZSTD_getErrorCode(error) != ZSTD_error_frameParameter_windowTooLarge) {
      return Broken(path_, "zstd", ZSTD_getErrorName(error));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        path_, " needs ", WindowText(), " of memory to decompress, the limit is ",
        int64_t{1} << kLargestZstdWindowLog,
        ": compress it again with a smaller window, zstd -d --long=31 -c OLD | zstd -o NEW"));
  }

  // The window that the frame's header declares (RFC 8878, 3.1.1.1).
  std::string WindowText() const {
    constexpr uint8_t kSingleSegment = 0x20;  // then the window is the whole content
    if (frame_start_.size() < kFrameStart ||
        (static_cast<uint8_t>(frame_start_[4]) & kSingleSegment) != 0) {
      return "its whole content";
    }
    const uint8_t window = static_cast<uint8_t>(frame_start_[5]);
    const int64_t base = int64_t{1} << (10 + (window >> 3));
    return absl::StrCat(base + base / 8 * (window & 7), " bytes");
  }

  PlainSource file_;
  std::string path_;
  std::string frame_start_;  // the frame's first bytes; fewer where a chunk ends among them
  ZSTD_DCtx* context_;
  std::vector<char> input_ = std::vector<char>(kCompressedChunk);
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  bool inside_frame_ = false;
  bool output_pending_ = false;  // the decoder may hold more than the last buffer took
};

bool IsGzip(absl::string_view start) { return absl::StartsWith(start, "\x1F\x8B"); }

bool IsZstd(absl::string_view start) {
  if (absl::StartsWith(start, "\x28\xB5\x2F\xFD")) return true;
  // A skippable frame: 5x 2A 4D 18.
  return start.size() >= 4 && (static_cast<uint8_t>(start[0]) & 0xF0) == 0x50 &&
         start.substr(1, 3) == "\x2A\x4D\x18";
}

}  // namespace

bool IsCompressed(absl::string_view start) { return IsGzip(start) || IsZstd(start); }

absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return ErrnoStatus(errno, "open", path);
  char magic[6];
  const size_t read = std::fread(magic, 1, sizeof(magic), file.get());
  if (std::ferror(file.get()) != 0) return ErrnoStatus(errno, "read", path);
  std::rewind(file.get());
  const absl::string_view start(magic, read);
  if (absl::StartsWith(start, "BZh") || absl::StartsWith(start,
                                                         "\xFD"
                                                         "7zXZ")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is compressed with ", start[0] == 'B' ? "bzip2" : "xz",
                     ", which is not read: use gzip, zstd or no compression"));
  }
  if (IsGzip(start)) {
    return std::make_unique<GzipSource>(std::move(file), path);
  }
  if (IsZstd(start)) return std::make_unique<ZstdSource>(std::move(file), path);
  return std::make_unique<PlainSource>(std::move(file), path);
}

}  // namespace octavo::engine
