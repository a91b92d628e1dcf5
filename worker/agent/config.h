// What a person decides about a worker. Flags and the YAML file use the same names.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/agent/child.h"

namespace octavo::agent {

struct Config {
  std::string server = "127.0.0.1:7070";
  std::string worker_id;     // empty: as in the work folder, else the host name
  std::string work_dir;      // empty: DefaultWorkFolder()
  std::string trainer;       // empty: octavo-trainer beside this program
  int cpu_devices = 1;       // 0: no CPU device is offered
  int64_t memory_bytes = 0;  // of one CPU device; 0: an equal share of the machine's
  int threads = 0;           // of one trainer; 0: an equal share of the cores

  // How long trainers go on without a word from the coordinator; zero: for as long as they like.
  absl::Duration out_of_contact_limit = absl::Hours(24);

  // Limits. Each queue is bounded by one of them.
  absl::Duration stop_grace = absl::Seconds(5);  // from SIGTERM to SIGKILL of a trainer
  absl::Duration death_time = kDeathTime;        // from SIGKILL until a trainer counts as stuck
  int kill_signal = SIGKILL;                     // another one: only in tests
  absl::Duration inspection_time = absl::Seconds(60);
  int64_t inspection_queue = 16;
  int64_t inspection_output_bytes = 4 << 20;
  int64_t pending_log_bytes = 1 << 20;  // of an attempt; more is dropped and counted
  // Metrics of an attempt, 32 bytes each; more makes the trainer wait. With the 15 at most of a
  // step, 25 steps a second go on for 44 minutes without a coordinator, one a second for 18 hours.
  int64_t pending_metric_points = 1000000;
  absl::Duration call_deadline = absl::Seconds(5);  // of one unary call to the coordinator
};

// $XDG_STATE_HOME/octavo-worker, else ~/.local/state/octavo-worker.
std::string DefaultWorkFolder();

// The work folder of one agent: made with mode 0700 and locked against a second agent for as long
// as this object lives.
class WorkFolder {
 public:
  static absl::StatusOr<WorkFolder> Open(const std::string& path);
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder();

  const std::string& path() const { return path_; }
  // `wanted` if not empty, else what an earlier run used, else the host name. Remembered for the
  // next run. INVALID_ARGUMENT unless it is 1 to 63 characters of [A-Za-z0-9._-].
  absl::StatusOr<std::string> WorkerId(const std::string& wanted) const;
  // Short enough for socket paths, which end at 107 characters: within the work folder, or, if its
  // own path is too long, within the system's folder for temporary files.
  const std::string& socket_folder() const { return socket_folder_; }

 private:
  WorkFolder() = default;
  absl::Status MakeSocketFolder();
  std::string path_;
  std::string socket_folder_;
  int lock_ = -1;
};

// Bytes of memory that this process may fill: the machine's, or its control group's limit if less.
int64_t UsableMemoryBytes();

}  // namespace octavo::agent
