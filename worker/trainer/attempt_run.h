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
  absl::Status Stop();
  // Whether a checkpoint will be committed before the grace ends: if the longest one of this
  // attempt, and half of that again, fits into what is left of it. Unmeasured, it does not.
  bool HasTimeToSave() const;
  absl::Status TakeStep();
  absl::Status SaveCheckpoint();
  absl::Status SaveProgress() const;
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
  int64_t checkpoint_step_ = 0;  // of the newest committed checkpoint
  absl::Duration longest_save_;  // zero: none was saved
  MetricQueue metrics_;          // uses `link_`
};

}  // namespace octavo::trainer
