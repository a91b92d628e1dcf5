// One attempt of a job, from its assignment to the last report.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "worker/engine/engine.h"
#include "worker/trainer/agent_link.h"
#include "worker/trainer/committer.h"
#include "worker/trainer/failure.h"
#include "worker/trainer/job_folders.h"
#include "worker/trainer/metric_queue.h"
#include "worker/trainer/stop_request.h"

namespace octavo::trainer {

using PrepareEngine = std::function<absl::StatusOr<std::unique_ptr<engine::Engine>>(
    const engine::RunSpec&, const std::string& resume_folder, kernels::Backend*)>;

struct RunOptions {
  int64_t memory_bytes = 0;  // of the device; 0: what the backend finds
  int threads = 0;           // of the CPU backend; 0: one per core
  PrepareEngine prepare = &engine::Engine::Prepare;
  const Clock* clock = nullptr;
  const StopRequest* stop = nullptr;  // set by SIGTERM; obeyed between steps
  absl::Duration stop_grace;          // from then until SIGKILL; see AttemptRun::HasTimeToSave
  int64_t most_waiting_steps = 1000;  // of metrics that the agent has not taken yet
  std::ostream* out = nullptr;        // lines for people
};

// Training waits neither for the agent nor for the coordinator: metrics and commits leave from
// threads of their own. A checkpoint that falls due while the last commit is not answered yet is
// saved at the first step after the answer. Only three things wait: a step whose metrics find
// `most_waiting_steps` before them, the end of the run, and a stop, within its grace.
class AttemptRun {
 public:
  enum class End {
    kReported,   // the agent holds the result, good or bad
    kStopped,    // somebody wished it
    kAgentLost,  // there is nobody to report to
  };

  // `link` outlives the run.
  AttemptRun(v1::Assignment assignment, AgentLink* link, RunOptions options);
  End Execute();

 private:
  absl::Status Prepare();
  absl::Status CheckResumeFolder() const;
  absl::Status OpenEngine();
  absl::Status Train();
  // Saves the last step and waits until it is committed.
  absl::Status SaveLastStep();
  // Ends as a stop asks for, within the grace; sets stopped_.
  absl::Status Stop();
  absl::Status SaveBeforeStop();
  // Whether a checkpoint will be committed before the grace ends: if the longest one of this
  // attempt, and half of that again, fits into what is left of it. Unmeasured, it does not.
  bool HasTimeToSave() const;
  absl::Duration GraceLeft() const;
  absl::Status TakeStep();
  // Writes it and asks for its commit, which NoteCommit learns about later. One at a time.
  absl::Status SaveCheckpoint();
  absl::Status SaveProgress() const;
  // Takes the answer to the commit under way, if it comes within `time_limit`.
  absl::Status NoteCommit(absl::Duration time_limit);
  // Waits for it until a stop is asked for.
  absl::Status AwaitCommit();
  void RestoreProgress();
  absl::Status Complete();
  absl::Status ExportWeights();
  // Marks the end of the agent in `status`, so that nothing is reported to it.
  absl::Status FromAgent(const absl::Status& status);
  void Say(const std::string& line) const;
  End Report(const absl::Status& status);

  const v1::Assignment assignment_;
  AgentLink* const link_;
  const RunOptions options_;
  const JobFolders folders_;
  engine::RunSpec spec_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<engine::Engine> engine_;  // destroyed before its backend
  Phase phase_ = Phase::kPrepare;
  bool agent_lost_ = false;
  bool stopped_ = false;
  v1::RunReport report_;
  std::vector<float> tokens_per_second_;  // one a step of this attempt, for the median
  absl::Duration last_line_ = -absl::InfiniteDuration();
  int64_t saved_step_ = 0;       // of the newest checkpoint, whether it is committed yet or not
  absl::Duration longest_save_;  // zero: none was saved
  MetricQueue metrics_;          // uses `link_`
  Committer committer_;          // uses `link_` and `metrics_`
};

}  // namespace octavo::trainer
