#include "worker/trainer/job_folders.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"

namespace octavo::trainer {
namespace fs = std::filesystem;
namespace {

enum class Kind { kCheckpoint, kExport, kProgress, kReport };

// The name of something that an attempt writes.
struct WrittenName {
  Kind kind;
  int64_t step = 0;  // of a checkpoint
  int64_t epoch = 0;
  bool whole = false;  // else under the name it has until it is complete
};

bool IsHexadecimal(absl::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), absl::ascii_isxdigit);
}

// What PendingFolder and WriteFileAtomically add to a name until it is complete.
bool IsEndingOfUnfinished(absl::string_view ending) {
  if (absl::ConsumePrefix(&ending, ".partial-")) return IsHexadecimal(ending, 16);
  return absl::ConsumePrefix(&ending, ".") && absl::ConsumeSuffix(&ending, ".tmp") &&
         IsHexadecimal(ending, 8);
}

std::optional<WrittenName> ParseKind(absl::string_view text) {
  if (text == "export") return WrittenName{.kind = Kind::kExport};
  if (text == "progress") return WrittenName{.kind = Kind::kProgress};
  if (text == "report") return WrittenName{.kind = Kind::kReport};
  WrittenName name{.kind = Kind::kCheckpoint};
  if (!absl::ConsumePrefix(&text, "step-") || !absl::SimpleAtoi(text, &name.step)) {
    return std::nullopt;
  }
  return name;
}

// "step-00000100.epoch-3", "report.epoch-3.json"; nothing for names that no attempt gives.
std::optional<WrittenName> ParseName(absl::string_view text) {
  constexpr absl::string_view kMark = ".epoch-";
  const size_t mark = text.find(kMark);
  if (mark == absl::string_view::npos) return std::nullopt;
  std::optional<WrittenName> name = ParseKind(text.substr(0, mark));
  absl::string_view ending = text.substr(mark + kMark.size());
  const absl::string_view digits = ending.substr(0, ending.find_first_not_of("0123456789"));
  if (!name.has_value() || !absl::SimpleAtoi(digits, &name->epoch)) return std::nullopt;
  ending.remove_prefix(digits.size());
  const bool file = name->kind == Kind::kProgress || name->kind == Kind::kReport;
  if (file && !absl::ConsumePrefix(&ending, ".json")) return std::nullopt;
  name->whole = ending.empty();
  return name->whole || IsEndingOfUnfinished(ending) ? name : std::nullopt;
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

// A folder that resists costs disk, not the run: it is logged.
void Remove(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) LogWarning("removing ", path, ": ", error.message(), "; it stays on disk");
  }
}

}  // namespace

JobFolders::JobFolders(const v1::Assignment& assignment)
    : root_((fs::path(assignment.spec().output_folder()) / assignment.lease().job_id()).string()),
      checkpoints_(absl::StrCat(root_, "/checkpoints")),
      epoch_(assignment.lease().epoch()),
      resume_step_(assignment.resume_from().step()),
      resume_epoch_(assignment.resume_from().epoch()),
      resume_folder_(assignment.resume_from().folder()),
      keep_(assignment.spec().stages(0).checkpoint().keep()) {}

std::string JobFolders::PathOf(absl::string_view name, int64_t epoch,
                               absl::string_view ending) const {
  return absl::StrCat(root_, "/", name, ".epoch-", epoch, ending);
}
std::string JobFolders::Checkpoint(int64_t step) const {
  return absl::StrFormat("%s/step-%08d.epoch-%d", checkpoints_, step, epoch_);
}
std::string JobFolders::Export() const { return PathOf("export", epoch_, ""); }
std::string JobFolders::Progress() const { return PathOf("progress", epoch_, ".json"); }
std::string JobFolders::Report() const { return PathOf("report", epoch_, ".json"); }
std::string JobFolders::ResumedProgress() const {
  return PathOf("progress", resume_epoch_, ".json");
}

bool JobFolders::IsLeftOver(absl::string_view text) const {
  const std::optional<WrittenName> name = ParseName(text);
  if (!name.has_value() || name->epoch >= epoch_) return false;
  if (!name->whole) return true;
  switch (name->kind) {
    case Kind::kExport:
    case Kind::kReport:
      return true;
    case Kind::kProgress:
      return name->epoch != resume_epoch_;
    case Kind::kCheckpoint:
      break;
  }
  if (name->step > resume_step_) return true;
  return name->step == resume_step_ && text != fs::path(resume_folder_).filename().string();
}

// What attempts before this one wrote without a commit is swept already, so the newest folders that
// are left are the newest that were committed.
void JobFolders::RemoveObsolete() const {
  if (resume_folder_.empty()) return;
  std::vector<std::pair<int64_t, std::string>> committed;  // step, folder
  for (const std::string& path : PathsIn(checkpoints_)) {
    const auto name = ParseName(fs::path(path).filename().string());
    const bool checkpoint = name.has_value() && name->kind == Kind::kCheckpoint && name->whole;
    if (checkpoint && name->epoch < epoch_) committed.emplace_back(name->step, path);
  }
  std::sort(committed.rbegin(), committed.rend());
  std::vector<std::string> obsolete;
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep_, 1)); i < committed.size(); ++i) {
    obsolete.push_back(committed[i].second);
  }
  Remove(obsolete);
}

bool JobFolders::IsRemovableCheckpoint(const std::string& folder) const {
  const fs::path path = fs::path(folder).lexically_normal();
  if (path.parent_path() != fs::path(checkpoints_).lexically_normal()) return false;
  const auto name = ParseName(path.filename().string());
  return name.has_value() && name->kind == Kind::kCheckpoint && name->whole &&
         name->epoch <= epoch_;
}

void JobFolders::RemoveObsolete(const std::vector<std::string>& folders) const {
  std::vector<std::string> obsolete;
  for (const std::string& folder : folders) {
    if (IsRemovableCheckpoint(folder)) {
      obsolete.push_back(folder);
    } else {
      LogWarning("the coordinator wants \"", folder, "\" removed, which is no checkpoint in ",
                 checkpoints_, "; it stays on disk");
    }
  }
  Remove(obsolete);
}

absl::Status JobFolders::Prepare() const {
  RETURN_IF_ERROR(MakeFolders(checkpoints_));
  std::vector<std::string> left_over;
  for (const std::string& folder : {root_, checkpoints_}) {
    for (const std::string& path : PathsIn(folder)) {
      if (IsLeftOver(fs::path(path).filename().string())) left_over.push_back(path);
    }
  }
  Remove(left_over);
  return absl::OkStatus();
}

}  // namespace octavo::trainer
