// Where a job's output lies, and what of an earlier attempt may be swept away.
//
//   <output_folder>/<job id>/
//     checkpoints/step-00000100.epoch-3/   a checkpoint, committed or about to be
//     export/                              a Hugging Face folder
//     progress.json                        figures at the newest checkpoint
//     report.json                          the RunReport
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::trainer {

class JobFolders {
 public:
  explicit JobFolders(const v1::Assignment& assignment);

  const std::string& root() const { return root_; }
  const std::string& checkpoints() const { return checkpoints_; }
  std::string Checkpoint(int64_t step) const;
  std::string Export() const;
  std::string NewExport() const;  // of this attempt, before it takes the place of Export()
  std::string Progress() const;
  std::string Report() const;

  // Makes the folders and removes what attempts before this one wrote and did not commit. Whoever
  // wrote it is fenced: it cannot commit it any more. What cannot be removed is left.
  absl::Status Prepare() const;

  // Removes committed checkpoints that the job no longer keeps: an attempt that ended between its
  // last commit and their removal left them. Only once the checkpoint of the assignment is known
  // to be whole.
  void RemoveObsolete() const;

  // Whether a folder of this name within root() or checkpoints() was completed but neither
  // committed nor put in place by an attempt before this one. What is incomplete the engine removes
  // itself.
  bool IsLeftOver(absl::string_view name) const;

 private:
  std::string root_;
  std::string checkpoints_;
  int64_t epoch_;
  int64_t resume_step_;        // 0: no checkpoint yet
  std::string resume_folder_;  // empty: none
  int64_t keep_;               // committed checkpoints, newest first
};

// Puts `fresh` in the place of `folder`, whether that exists or not; then removes what lay there
// before. One rename exchanges the two. File systems without that (NFS, FUSE) move the old folder
// to ReplacedName(folder) first: if that is all that happened, RestoreReplaced() puts it back.
absl::Status ReplaceFolder(const std::string& fresh, const std::string& folder);

std::string ReplacedName(const std::string& folder);
absl::Status RestoreReplaced(const std::string& folder);

// Removes folders of checkpoints. A folder that resists costs disk, not the run: it is logged.
void RemoveFolders(const std::vector<std::string>& folders);

}  // namespace octavo::trainer
