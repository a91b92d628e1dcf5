#include "worker/agent/config.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace octavo::agent {
namespace {

namespace fs = std::filesystem;

// sun_path of sockaddr_un holds 108 bytes with its final NUL; a name of a socket is kept below 40.
constexpr size_t kMaxSocketFolder = 107 - 40;

absl::Status MakePrivateFolder(const std::string& path) {
  RETURN_IF_ERROR(MakeFolders(path));
  if (chmod(path.c_str(), 0700) != 0) return ErrnoStatus(errno, "restricting", path);
  return absl::OkStatus();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "worker";
}

bool IsWorkerId(const std::string& id) {
  return !id.empty() && id.size() <= 63 && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

std::string DefaultWorkFolder() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/') {
    return absl::StrCat(state, "/octavo-worker");
  }
  const char* home = std::getenv("HOME");
  return absl::StrCat(home != nullptr ? home : "", "/.local/state/octavo-worker");
}

absl::StatusOr<WorkFolder> WorkFolder::Open(const std::string& path) {
  WorkFolder folder;
  folder.path_ = fs::absolute(path).lexically_normal().string();
  RETURN_IF_ERROR(MakePrivateFolder(folder.path_));
  const std::string lock = folder.path_ + "/lock";
  folder.lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (folder.lock_ < 0) return ErrnoStatus(errno, "opening", lock);
  if (flock(folder.lock_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("work folder ", folder.path_,
                     " belongs to a running octavo-worker; give this one another --work-dir"));
  }
  RETURN_IF_ERROR(folder.MakeSocketFolder());
  return folder;
}

absl::Status WorkFolder::MakeSocketFolder() {
  socket_folder_ = path_ + "/sockets";
  if (socket_folder_.size() <= kMaxSocketFolder) {
    std::error_code error;  // sockets of a killed agent; what resists fails in the next line
    fs::remove_all(socket_folder_, error);
    return MakePrivateFolder(socket_folder_);
  }
  char name[] = "/tmp/octavo-XXXXXX";
  if (mkdtemp(name) == nullptr) return ErrnoStatus(errno, "creating folder", name);
  socket_folder_ = name;
  return absl::OkStatus();
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept
    : path_(std::move(other.path_)),
      socket_folder_(std::exchange(other.socket_folder_, "")),
      lock_(std::exchange(other.lock_, -1)) {}

WorkFolder::~WorkFolder() {
  std::error_code error;  // nobody is left to tell
  if (!socket_folder_.empty()) fs::remove_all(socket_folder_, error);
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<std::string> WorkFolder::WorkerId(const std::string& wanted) const {
  const std::string file = path_ + "/worker-id";
  std::string id = wanted;
  if (id.empty()) {
    const auto remembered = ReadFile(file, 256);
    id = remembered.ok() ? std::string(absl::StripAsciiWhitespace(*remembered)) : HostName();
  }
  if (!IsWorkerId(id)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker id \"", id, "\" must be 1 to 63 characters of A-Z, a-z, 0-9, '.', '_' and '-'"));
  }
  RETURN_IF_ERROR(WriteFileAtomically(file, id + "\n"));
  return id;
}

int64_t UsableMemoryBytes() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  // Control groups version 2; "max" means no limit and does not parse.
  const auto limit = ReadFile("/sys/fs/cgroup/memory.max", 64);
  int64_t limit_bytes = 0;
  if (limit.ok() && absl::SimpleAtoi(*limit, &limit_bytes)) bytes = std::min(bytes, limit_bytes);
  return bytes;
}

}  // namespace octavo::agent
