// Files as the rest of the project wants them: whole, durable, with errors that name the path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo {

// "No such file or directory"-like errors become NOT_FOUND, no space RESOURCE_EXHAUSTED, no
// permission PERMISSION_DENIED, others INTERNAL; the message is "<action> <path>: <system's
// words>".
absl::Status ErrnoStatus(int error, absl::string_view action, absl::string_view path);

// Refuses files above `limit_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes);

// Whole or not at all: writes a sibling, fsyncs it, renames it over `path`, fsyncs the folder.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

absl::Status SyncFolder(const std::string& folder);
// With its parents; those that are new are durable when it returns.
absl::Status MakeFolders(const std::string& folder);

// A regular file, read at any place. It is not mapped: a mapped file that somebody cuts off kills
// whoever reads on, where read() says that there is no more.
class OpenFile {
 public:
  static absl::StatusOr<OpenFile> Open(const std::string& path);
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  int64_t bytes() const { return bytes_; }  // when it was opened
  // Fills out[0, bytes) from `offset` on, within bytes(). DATA_LOSS: the file was cut off
  // meanwhile.
  absl::Status ReadAt(int64_t offset, int64_t bytes, void* out) const;
  // Lower-case hexadecimal, of all bytes().
  absl::StatusOr<std::string> Sha256() const;

 private:
  OpenFile(std::string path, int descriptor, int64_t bytes)
      : path_(std::move(path)), descriptor_(descriptor), bytes_(bytes) {}
  std::string path_;
  int descriptor_;
  int64_t bytes_;
};

// Lower-case hexadecimal SHA-256.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(const void* data, size_t bytes);
  std::string Finish();  // once

 private:
  void* context_;
};
std::string Sha256Of(absl::string_view data);

// `bytes` random bytes as hexadecimal digits, from the system.
std::string RandomHex(int bytes);

}  // namespace octavo
