// Files as the rest of the project wants them: whole, durable, with errors that name the path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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
absl::Status MakeFolders(const std::string& folder);

// A file mapped read-only. Owns the mapping.
class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  absl::string_view data() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}
  const char* data_;
  size_t size_;
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
