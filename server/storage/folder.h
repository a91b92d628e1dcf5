// The coordinator's data folder: private to its user, on a local disk, held by one process.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace octavo::storage {

// The name of a network filesystem by its statfs f_type, null for others. SQLite's locks and shared
// memory do not hold on those (https://www.sqlite.org/wal.html, section 1), so the folder must not
// lie on one.
const char* NetworkFilesystemName(long type);

// Holds an exclusive lock on <folder>/lock; the system lets go of it when the process ends, however
// it ends.
class DataFolder {
 public:
  // Creates the folder (mode 0700) where it is missing. FAILED_PRECONDITION on a network filesystem
  // or while another process holds it.
  static absl::StatusOr<std::unique_ptr<DataFolder>> Open(const std::string& path);
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string database_path() const { return path_ + "/octavo.sqlite"; }

 private:
  DataFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;
};

}  // namespace octavo::storage
