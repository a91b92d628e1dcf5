// A folder that appears complete or not at all.
//
// It is filled under the sibling name `<folder>.partial-<16 hexadecimal digits>`, locked with
// flock() for as long as its writer lives. A writer that is killed leaves its partial behind
// without a lock; the next PendingFolder of the same name removes it. Partials of other names are
// left alone: where locks do not reach other machines, somebody there may still write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"

namespace octavo::engine {

struct WrittenFile {
  std::string name;  // within the folder, perhaps "folder/name"
  int64_t bytes = 0;
  std::string sha256;
};

class PendingFolder {
 public:
  // ALREADY_EXISTS when `folder` exists. Its parents are made.
  static absl::StatusOr<PendingFolder> Create(const std::string& folder);
  PendingFolder(PendingFolder&& other) noexcept;
  PendingFolder& operator=(PendingFolder&&) = delete;
  ~PendingFolder();  // removes what was not published

  // Where files are to be written meanwhile.
  const std::string& path() const { return partial_; }
  // A folder within it, before files named "name/..." are written.
  absl::Status MakeFolder(const std::string& name);
  // Each file must be durable (PendingFile::Finish). Syncs the folder and those within it, renames
  // it, syncs its parent.
  absl::Status Publish();

 private:
  PendingFolder() = default;
  absl::Status MakeAndLock();
  std::string folder_;
  std::string partial_;
  std::vector<std::string> folders_;  // within it
  int lock_ = -1;
};

// A new file of a pending folder, hashed while it is written.
class PendingFile {
 public:
  static absl::StatusOr<PendingFile> Create(const PendingFolder& folder, const std::string& name);
  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  absl::Status Write(absl::string_view data);
  // Syncs and closes. Nothing may be written afterwards.
  absl::StatusOr<WrittenFile> Finish();

 private:
  PendingFile() = default;
  std::string path_;
  WrittenFile written_;
  std::unique_ptr<Sha256> hash_;
  int file_ = -1;
};

absl::StatusOr<WrittenFile> WritePendingFile(const PendingFolder& folder, const std::string& name,
                                             absl::string_view content);

}  // namespace octavo::engine
