#include "base/file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo {
namespace {

// Closes on destruction; Close() reports what close() said.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Close() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

absl::Status WriteAll(int fd, absl::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "writing", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view action, absl::string_view path) {
  const std::string message = absl::StrCat(action, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return ErrnoStatus(errno, "opening", path);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "reading", path);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("reading ", path, ": it is a folder"));
  }
  std::string content;
  char buffer[65536];
  while (true) {
    const ssize_t got = read(file.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "reading", path);
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(content.size()) > limit_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("reading ", path, ": larger than the limit of ", limit_bytes, " bytes"));
    }
  }
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  const std::string temporary = absl::StrCat(path, ".", RandomHex(4), ".tmp");
  const auto write_temporary = [&]() -> absl::Status {
    Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.ok()) return ErrnoStatus(errno, "creating", temporary);
    RETURN_IF_ERROR(WriteAll(file.get(), content, path));
    if (fsync(file.get()) != 0) return ErrnoStatus(errno, "syncing", path);
    if (file.Close() != 0) return ErrnoStatus(errno, "closing", path);
    if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "renaming", path);
    return absl::OkStatus();
  };
  if (absl::Status failed = write_temporary(); !failed.ok()) {
    unlink(temporary.c_str());
    return failed;
  }
  return SyncFolder(std::filesystem::absolute(path).parent_path());
}

absl::Status SyncFolder(const std::string& folder) {
  Descriptor file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.ok()) return ErrnoStatus(errno, "opening", folder);
  if (fsync(file.get()) != 0) return ErrnoStatus(errno, "syncing", folder);
  return absl::OkStatus();
}

absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> missing;  // from the innermost outwards
  std::filesystem::path part = std::filesystem::absolute(folder, error).lexically_normal();
  if (error) return ErrnoStatus(error.value(), "resolving", folder);
  for (; !std::filesystem::exists(part, error) && part.has_relative_path();
       part = part.parent_path()) {
    if (!part.filename().empty()) missing.push_back(part);  // empty after a trailing slash
  }
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "creating folder", folder);
  // A folder's name lies in its parent: without these its content may be lost with it.
  for (auto made = missing.rbegin(); made != missing.rend(); ++made) {
    RETURN_IF_ERROR(SyncFolder(made->parent_path()));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenFile> OpenFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(errno, "opening", path);
  OpenFile file(path, descriptor, 0);
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(errno, "reading", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("reading ", path, ": it is not a regular file"));
  }
  file.bytes_ = info.st_size;
  return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status OpenFile::ReadAt(int64_t offset, int64_t bytes, void* out) const {
  CHECK(offset >= 0 && bytes >= 0 && bytes <= bytes_ - offset);
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "reading", path_);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("reading ", path_, ": it had ", bytes_,
                                              " bytes and ends at byte ", offset,
                                              " now; somebody cut it off"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> OpenFile::Sha256() const {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  std::string piece(static_cast<size_t>(std::min(bytes_, kPieceBytes)), '\0');
  octavo::Sha256 hash;
  for (int64_t offset = 0; offset < bytes_; offset += kPieceBytes) {
    const int64_t size = std::min(bytes_ - offset, kPieceBytes);
    RETURN_IF_ERROR(ReadAt(offset, size, piece.data()));
    hash.Update(piece.data(), static_cast<size_t>(size));
  }
  return hash.Finish();
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::Update(const void* data, size_t bytes) {
  CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, bytes) == 1);
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest, &length) == 1);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), length});
}

std::string Sha256Of(absl::string_view data) {
  Sha256 hash;
  hash.Update(data.data(), data.size());
  return hash.Finish();
}

std::string RandomHex(int bytes) {
  std::string random(static_cast<size_t>(bytes), '\0');
  CHECK(getrandom(random.data(), random.size(), 0) == bytes);
  return absl::BytesToHexString(random);
}

}  // namespace octavo
