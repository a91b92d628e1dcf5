#include "server/storage/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"

namespace octavo::storage {
namespace {

absl::Status RefuseNetworkFilesystem(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return ErrnoStatus(errno, "inspecting", path);
  const char* name = NetworkFilesystemName(info.f_type);
  if (name == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("data folder ", path, " lies on ", name,
                   ", where SQLite's locks do not hold; choose a folder on a local disk"));
}

absl::StatusOr<int> Lock(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoStatus(errno, "opening", path);
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int error = errno;
  char holder[32] = {};
  const ssize_t got = read(file, holder, sizeof(holder) - 1);
  close(file);
  if (error != EWOULDBLOCK) return ErrnoStatus(error, "locking", path);
  return absl::FailedPreconditionError(absl::StrCat(
      "another octavod (process ", got > 0 ? absl::StripSuffix(holder, "\n") : "unknown",
      ") uses this data folder: it holds ", path, "; stop it or choose another --data-dir"));
}

}  // namespace

const char* NetworkFilesystemName(long type) {
  // Numbers of Linux's include/uapi/linux/magic.h and of the filesystems' own headers.
  switch (static_cast<unsigned long>(type) & 0xFFFFFFFFul) {
    case 0x6969:
      return "NFS";
    case 0x517B:
    case 0xFF534D42:
    case 0xFE534D42:
      return "SMB";
    case 0x5346414F:
      return "AFS";
    case 0x73757245:
      return "Coda";
    case 0x00C36400:
      return "CephFS";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    default:
      return nullptr;
  }
}

absl::StatusOr<std::unique_ptr<DataFolder>> DataFolder::Open(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    RETURN_IF_ERROR(MakeFolders(path));
    if (chmod(path.c_str(), 0700) != 0) return ErrnoStatus(errno, "protecting", path);
  } else if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("data folder ", path, " is a file; choose another --data-dir"));
  }
  RETURN_IF_ERROR(RefuseNetworkFilesystem(path));
  ASSIGN_OR_RETURN(const int lock, Lock(path + "/lock"));
  auto folder = std::unique_ptr<DataFolder>(new DataFolder(path, lock));
  const std::string holder = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock, 0) != 0 ||
      pwrite(lock, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
    return ErrnoStatus(errno, "writing", path + "/lock");
  }
  return folder;
}

DataFolder::~DataFolder() { close(lock_); }

}  // namespace octavo::storage
