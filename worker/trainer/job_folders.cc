#include "worker/trainer/job_folders.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::trainer {
namespace fs = std::filesystem;
namespace {

struct CheckpointName {
  int64_t step = 0;
  int64_t epoch = 0;
};

// "step-00000100.epoch-3"; nothing for other names.
std::optional<CheckpointName> ParseCheckpointName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "step-")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, ".epoch-");
  CheckpointName result;
  const bool whole = parts.size() == 2 && absl::SimpleAtoi(parts[0], &result.step) &&
                     absl::SimpleAtoi(parts[1], &result.epoch);
  return whole ? std::optional(result) : std::nullopt;
}

std::vector<std::string> PathsIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    paths.push_back(entry->path().string());
  }
  return paths;
}

}  // namespace

JobFolders::JobFolders(const v1::Assignment& assignment)
    : root_((fs::path(assignment.spec().output_folder()) / assignment.lease().job_id()).string()),
      checkpoints_(absl::StrCat(root_, "/checkpoints")),
      epoch_(assignment.lease().epoch()),
      resume_step_(assignment.resume_from().step()),
      resume_folder_(assignment.resume_from().folder()),
      keep_(assignment.spec().stages(0).checkpoint().keep()) {}

std::string JobFolders::Checkpoint(int64_t step) const {
  return absl::StrFormat("%s/step-%08d.epoch-%d", checkpoints_, step, epoch_);
}
std::string JobFolders::Export() const { return absl::StrCat(root_, "/export"); }
std::string JobFolders::NewExport() const { return absl::StrCat(root_, "/export.epoch-", epoch_); }
std::string JobFolders::Progress() const { return absl::StrCat(root_, "/progress.json"); }
std::string JobFolders::Report() const { return absl::StrCat(root_, "/report.json"); }

bool JobFolders::IsLeftOver(absl::string_view name) const {
  int64_t epoch = 0;
  if (absl::string_view digits = name; absl::ConsumePrefix(&digits, "export.epoch-")) {
    return absl::SimpleAtoi(digits, &epoch) && epoch < epoch_;
  }
  const std::optional<CheckpointName> checkpoint = ParseCheckpointName(name);
  if (!checkpoint.has_value() || checkpoint->epoch >= epoch_) return false;
  if (checkpoint->step > resume_step_) return true;
  return checkpoint->step == resume_step_ && name != fs::path(resume_folder_).filename().string();
}

// What attempts before this one wrote without a commit is swept already, so the newest folders that
// are left are the newest that were committed.
void JobFolders::RemoveObsolete() const {
  if (resume_folder_.empty()) return;
  std::vector<std::pair<int64_t, std::string>> committed;  // step, folder
  for (const std::string& path : PathsIn(checkpoints_)) {
    const auto name = ParseCheckpointName(fs::path(path).filename().string());
    if (name.has_value() && name->epoch < epoch_) committed.emplace_back(name->step, path);
  }
  std::sort(committed.rbegin(), committed.rend());
  std::vector<std::string> obsolete;
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep_, 1)); i < committed.size(); ++i) {
    obsolete.push_back(committed[i].second);
  }
  RemoveFolders(obsolete);
}

absl::Status JobFolders::Prepare() const {
  RETURN_IF_ERROR(MakeFolders(checkpoints_));
  std::vector<std::string> left_over;
  for (const std::string& folder : {root_, checkpoints_}) {
    for (const std::string& path : PathsIn(folder)) {
      if (IsLeftOver(fs::path(path).filename().string())) left_over.push_back(path);
    }
  }
  RemoveFolders(left_over);
  return RestoreReplaced(Export());
}

namespace {

absl::Status ReplaceInTwoSteps(const std::string& fresh, const std::string& folder) {
  const std::string old = ReplacedName(folder);
  RETURN_IF_ERROR(RestoreReplaced(folder));  // of an attempt before; its name must be free
  if (rename(folder.c_str(), old.c_str()) != 0) return ErrnoStatus(errno, "moving away", folder);
  if (rename(fresh.c_str(), folder.c_str()) == 0) return absl::OkStatus();
  const absl::Status failed = ErrnoStatus(errno, "renaming", fresh);
  RETURN_IF_ERROR(RestoreReplaced(folder));
  return failed;
}

}  // namespace

absl::Status ReplaceFolder(const std::string& fresh, const std::string& folder) {
  const std::string parent = fs::path(folder).parent_path().string();
  if (rename(fresh.c_str(), folder.c_str()) == 0) return SyncFolder(parent);
  if (errno != ENOTEMPTY && errno != EEXIST) return ErrnoStatus(errno, "renaming", fresh);
  std::string old = fresh;
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(errno, "replacing", folder);
    old = ReplacedName(folder);
    RETURN_IF_ERROR(ReplaceInTwoSteps(fresh, folder));
  }
  RETURN_IF_ERROR(SyncFolder(parent));
  RemoveFolders({old});
  return absl::OkStatus();
}

std::string ReplacedName(const std::string& folder) { return absl::StrCat(folder, ".replaced"); }

absl::Status RestoreReplaced(const std::string& folder) {
  const std::string old = ReplacedName(folder);
  std::error_code error;
  if (!fs::exists(old, error)) return absl::OkStatus();
  if (fs::exists(folder, error)) {
    RemoveFolders({old});
    return absl::OkStatus();
  }
  if (rename(old.c_str(), folder.c_str()) != 0) return ErrnoStatus(errno, "putting back", old);
  return SyncFolder(fs::path(folder).parent_path().string());
}

void RemoveFolders(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) LogWarning("removing ", folder, ": ", error.message(), "; it stays on disk");
  }
}

}  // namespace octavo::trainer
