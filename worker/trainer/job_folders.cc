#include "worker/trainer/job_folders.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <filesystem>

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

JobFolders::JobFolders(const v1::Assignment& assignment)
    : root_((fs::path(assignment.spec().output_folder()) / assignment.lease().job_id()).string()),
      checkpoints_(absl::StrCat(root_, "/checkpoints")),
      epoch_(assignment.lease().epoch()),
      resume_step_(assignment.resume_from().step()),
      resume_folder_(assignment.resume_from().folder()) {}

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
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "step-")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, ".epoch-");
  int64_t step = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &step) ||
      !absl::SimpleAtoi(parts[1], &epoch) || epoch >= epoch_) {
    return false;
  }
  if (step > resume_step_) return true;
  return step == resume_step_ && name != fs::path(resume_folder_).filename().string();
}

absl::Status JobFolders::Prepare() const {
  RETURN_IF_ERROR(MakeFolders(checkpoints_));
  std::vector<std::string> left_over;
  for (const std::string& folder : {root_, checkpoints_}) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (IsLeftOver(name)) left_over.push_back(entry->path().string());
    }
  }
  RemoveFolders(left_over);
  return absl::OkStatus();
}

absl::Status ReplaceFolder(const std::string& fresh, const std::string& folder) {
  const std::string parent = fs::path(folder).parent_path().string();
  if (rename(fresh.c_str(), folder.c_str()) == 0) return SyncFolder(parent);
  if (errno != ENOTEMPTY && errno != EEXIST) return ErrnoStatus(errno, "renaming", fresh);
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    return ErrnoStatus(errno, "replacing", folder);
  }
  RETURN_IF_ERROR(SyncFolder(parent));
  RemoveFolders({fresh});
  return absl::OkStatus();
}

void RemoveFolders(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) LogWarning("removing ", folder, ": ", error.message(), "; it stays on disk");
  }
}

}  // namespace octavo::trainer
