// A child process in a process group of its own, that cannot outlive this one.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace octavo::agent {

// A process that is killed ends in milliseconds, or when its memory is given back: seconds.
inline constexpr absl::Duration kDeathTime = absl::Seconds(30);

// A flag that a poll() can wait for. Thread-safe.
class StopFlag {
 public:
  StopFlag();
  ~StopFlag();
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;
  void Set();
  bool is_set() const { return set_; }
  int fd() const { return fd_; }  // readable once set

 private:
  int fd_;
  std::atomic<bool> set_{false};
};

// The kernel kills the child when the *thread* that spawned it ends (PR_SET_PDEATHSIG), so the
// spawning thread must keep the object until the child is gone; its destructor sees to that. One
// that was killed and does not end, as a process that a driver or a file system holds, is no longer
// waited for: whoever has the object may look with TryReap whether it is gone.
class Child {
 public:
  struct Options {
    std::vector<std::string> arguments;    // the first is the program's path
    std::vector<std::string> environment;  // "NAME=value", put over what this process has
  };
  // Fails when the program cannot be executed.
  static absl::StatusOr<std::unique_ptr<Child>> Spawn(const Options& options);
  // Kills the whole group and reaps it, unless Watch has found that it does not end.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  struct WatchOptions {
    std::string input;  // written to its standard input, which is closed then
    std::function<void(absl::string_view)> on_output;
    std::function<void(absl::string_view)> on_error_output;
    const StopFlag* stop = nullptr;  // sends SIGTERM, and after stop_grace SIGKILL
    absl::Duration stop_grace;
    const StopFlag* kill = nullptr;                        // sends SIGKILL
    int kill_signal = SIGKILL;                             // another one: only in tests
    absl::Duration death_time = kDeathTime;                // from then until it counts as stuck
    absl::Duration time_limit = absl::InfiniteDuration();  // then SIGKILL
    const Clock* clock = nullptr;
  };
  struct Exit {
    int wait_status = 0;  // as waitpid gives it
    bool timed_out = false;
    bool stuck = false;  // it was killed and does not end
  };
  // Serves the child's pipes until it has exited and been reaped, its group with it. Once.
  Exit Watch(const WatchOptions& options);
  // Whether the child and its group are gone; does not wait.
  bool TryReap();

  int pid() const { return pid_; }

 private:
  class Watcher;
  Child(int pid, int pidfd, const int (&pipes)[3]);
  void Signal(int signal) const;  // to the group
  // False when something of it is still there after `time_limit`.
  bool KillAndReapGroup(int signal, absl::Duration time_limit);
  const int pid_;
  const int pidfd_;
  int pipes_[3];  // our ends of standard input, output and error; -1 once closed
  bool leader_reaped_ = false;
  bool reaped_ = false;  // the whole group
  bool stuck_ = false;
  int wait_status_ = 0;
};

// "exit code 3" or "killed by signal 9 (SIGKILL)".
std::string DescribeExit(int wait_status);

// A program from start to end. DEADLINE_EXCEEDED after `time_limit`, RESOURCE_EXHAUSTED when it
// writes more than `output_limit_bytes`, INTERNAL with its last error line when it does not exit
// with 0.
struct ProgramOptions {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::string input;
  absl::Duration time_limit;
  int64_t output_limit_bytes = 0;
  const StopFlag* stop = nullptr;
  const Clock* clock = nullptr;
};
absl::StatusOr<std::string> RunProgram(const ProgramOptions& options);

}  // namespace octavo::agent
