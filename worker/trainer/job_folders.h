// Where a job's output lies, and what of an earlier attempt may be swept away.
//
//   <output_folder>/<job id>/
//     checkpoints/step-00000100.epoch-3/   a checkpoint, committed or about to be
//     export.epoch-3/                      a Hugging Face folder
//     progress.epoch-3.json                figures at the newest checkpoint of that attempt
//     report.epoch-3.json                  the RunReport
//
// Everything that an attempt writes bears its epoch, so that one which lives on without its lease
// never writes where another does. An attempt removes only what older epochs wrote and what was no
// part of the job when it began; whatever they write later is refused when they want to commit it.
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
  std::string Progress() const;
  std::string Report() const;
  // That of the attempt which wrote the checkpoint of the assignment.
  std::string ResumedProgress() const;

  // Makes the folders and removes what attempts before this one wrote and did not commit. Whoever
  // wrote it is fenced: it cannot commit it any more. What cannot be removed is left.
  absl::Status Prepare() const;

  // Removes committed checkpoints that the job no longer keeps: an attempt that ended between its
  // last commit and their removal left them. Only once the checkpoint of the assignment is known
  // to be whole.
  void RemoveObsolete() const;
  // Those that the coordinator names. A path that is no checkpoint directly within checkpoints(),
  // written by this attempt or one before it, is logged and left, whoever asks for its removal.
  void RemoveObsolete(const std::vector<std::string>& folders) const;

  // Whether something of this name within root() or checkpoints() was written by an attempt before
  // this one and is no part of the job: never completed, never committed, or made anew by the
  // attempt that succeeds.
  bool IsLeftOver(absl::string_view name) const;

 private:
  std::string PathOf(absl::string_view name, int64_t epoch, absl::string_view ending) const;
  bool IsRemovableCheckpoint(const std::string& folder) const;
  std::string root_;
  std::string checkpoints_;
  int64_t epoch_;
  int64_t resume_step_;        // 0: no checkpoint yet
  int64_t resume_epoch_;       // of the attempt that wrote it
  std::string resume_folder_;  // empty: none
  int64_t keep_;               // committed checkpoints, newest first
};

}  // namespace octavo::trainer
