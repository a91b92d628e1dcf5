// Commits of checkpoints, so that training does not wait for the coordinator.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "octavo/v1/job.pb.h"

namespace octavo::trainer {

// Asks for one commit at a time, from a thread of its own.
class Committer {
 public:
  using ObsoleteFolders = absl::StatusOr<std::vector<std::string>>;
  // Returns once the coordinator has answered.
  using Commit = std::function<ObsoleteFolders(const v1::Checkpoint&)>;
  struct Answer {
    v1::Checkpoint checkpoint;
    ObsoleteFolders obsolete_folders;
  };

  explicit Committer(Commit commit);
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;
  // Waits for the commit under way. Whoever has no time for that makes `commit` return before.
  ~Committer();

  // From Start until its answer is taken.
  bool busy() const ABSL_LOCKS_EXCLUDED(mutex_);
  // CHECKs that it is not busy.
  void Start(v1::Checkpoint checkpoint) ABSL_LOCKS_EXCLUDED(mutex_);
  // The answer to the last commit, once; nothing if there is none within `time_limit`.
  std::optional<Answer> TakeAnswer(absl::Duration time_limit) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const Commit commit_;
  mutable absl::Mutex mutex_;
  std::optional<v1::Checkpoint> asked_ ABSL_GUARDED_BY(mutex_);
  std::optional<Answer> answer_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace octavo::trainer
