#include "worker/engine/checkpoint/pending_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::engine {
namespace {

constexpr absl::string_view kPartial = ".partial-";
constexpr size_t kRandomDigits = 16;

bool IsPartialOf(absl::string_view folder, absl::string_view path) {
  return absl::ConsumePrefix(&path, folder) && absl::ConsumePrefix(&path, kPartial) &&
         path.size() == kRandomDigits &&
         std::all_of(path.begin(), path.end(), absl::ascii_isxdigit);
}

// A folder's descriptor that holds its lock, or -1 with errno.
int OpenLocked(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return -1;
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int error = errno;
  close(file);
  errno = error;
  return -1;
}

// A lock that cannot be had, whatever the reason, means that somebody may still write there.
void RemoveAbandonedPartials(const std::string& folder, const std::string& parent) {
  std::error_code error;
  std::vector<std::string> partials;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsPartialOf(folder, entry->path().string())) partials.push_back(entry->path());
  }
  for (const std::string& partial : partials) {
    const int lock = OpenLocked(partial);
    if (lock < 0) continue;
    std::filesystem::remove_all(partial, error);
    close(lock);
    LogInfo("removed ", partial, ", left behind by a writer that is gone");
  }
}

bool StillThere(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(file, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// Never replaces; file systems without that flag are asked first.
absl::Status RenameNew(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL || errno == ENOSYS) {
    std::error_code error;
    if (!std::filesystem::exists(to, error) && rename(from.c_str(), to.c_str()) == 0) {
      return absl::OkStatus();
    }
    if (errno == EINVAL || errno == ENOSYS) errno = EEXIST;
  }
  if (errno == EEXIST || errno == ENOTEMPTY) {
    return absl::AlreadyExistsError(absl::StrCat("renaming to ", to, ": it exists"));
  }
  return ErrnoStatus(errno, "renaming to", to);
}

}  // namespace

absl::StatusOr<PendingFolder> PendingFolder::Create(const std::string& folder) {
  PendingFolder pending;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(folder, error).lexically_normal();
  if (error) return ErrnoStatus(error.value(), "resolving", folder);
  pending.folder_ = whole.filename().empty() ? whole.parent_path() : whole;
  if (std::filesystem::exists(pending.folder_, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("writing ", pending.folder_, ": it exists; name a folder that does not"));
  }
  const std::string parent = std::filesystem::path(pending.folder_).parent_path();
  RETURN_IF_ERROR(MakeFolders(parent));
  RemoveAbandonedPartials(pending.folder_, parent);
  // A cleaner may grab a fresh folder in the moment before it is locked; then another is made.
  absl::Status failed;
  for (int attempt = 0; attempt < 8; ++attempt) {
    failed = pending.MakeAndLock();
    if (failed.ok()) return pending;
  }
  return failed;
}

absl::Status PendingFolder::MakeAndLock() {
  partial_ = absl::StrCat(folder_, kPartial, RandomHex(kRandomDigits / 2));
  if (mkdir(partial_.c_str(), 0755) != 0) return ErrnoStatus(errno, "creating folder", partial_);
  lock_ = OpenLocked(partial_);
  const bool unsupported = lock_ < 0 && errno != EWOULDBLOCK && errno != ENOENT;
  if (unsupported || (lock_ >= 0 && StillThere(lock_, partial_))) return absl::OkStatus();
  if (lock_ >= 0) close(std::exchange(lock_, -1));
  return absl::AbortedError(absl::StrCat("locking ", partial_, ": another process removed it"));
}

PendingFolder::PendingFolder(PendingFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      partial_(std::exchange(other.partial_, "")),
      folders_(std::move(other.folders_)),
      lock_(std::exchange(other.lock_, -1)) {}

PendingFolder::~PendingFolder() {
  std::error_code error;
  if (!partial_.empty()) std::filesystem::remove_all(partial_, error);
  if (lock_ >= 0) close(lock_);
}

absl::Status PendingFolder::MakeFolder(const std::string& name) {
  const std::string path = absl::StrCat(partial_, "/", name);
  if (mkdir(path.c_str(), 0755) != 0) return ErrnoStatus(errno, "creating folder", path);
  folders_.push_back(path);
  return absl::OkStatus();
}

absl::Status PendingFolder::Publish() {
  for (const std::string& folder : folders_) RETURN_IF_ERROR(SyncFolder(folder));
  RETURN_IF_ERROR(SyncFolder(partial_));
  RETURN_IF_ERROR(RenameNew(partial_, folder_));
  partial_.clear();
  return SyncFolder(std::filesystem::path(folder_).parent_path());
}

absl::StatusOr<PendingFile> PendingFile::Create(const PendingFolder& folder,
                                                const std::string& name) {
  PendingFile result;
  result.path_ = absl::StrCat(folder.path(), "/", name);
  result.written_.name = name;
  result.hash_ = std::make_unique<Sha256>();
  result.file_ = open(result.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (result.file_ < 0) return ErrnoStatus(errno, "creating", result.path_);
  return result;
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)),
      written_(std::move(other.written_)),
      hash_(std::move(other.hash_)),
      file_(std::exchange(other.file_, -1)) {}

PendingFile::~PendingFile() {
  if (file_ >= 0) close(file_);
}

absl::Status PendingFile::Write(absl::string_view data) {
  hash_->Update(data.data(), data.size());
  written_.bytes += static_cast<int64_t>(data.size());
  while (!data.empty()) {
    const ssize_t count = write(file_, data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, "writing", path_);
    data.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> PendingFile::Finish() {
  if (fsync(file_) != 0) return ErrnoStatus(errno, "syncing", path_);
  if (close(std::exchange(file_, -1)) != 0) return ErrnoStatus(errno, "closing", path_);
  written_.sha256 = hash_->Finish();
  return written_;
}

absl::StatusOr<WrittenFile> WritePendingFile(const PendingFolder& folder, const std::string& name,
                                             absl::string_view content) {
  ASSIGN_OR_RETURN(PendingFile file, PendingFile::Create(folder, name));
  RETURN_IF_ERROR(file.Write(content));
  return file.Finish();
}

}  // namespace octavo::engine
