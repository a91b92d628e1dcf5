#include "worker/agent/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"
#include "worker/agent/log_lines.h"

namespace octavo::agent {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() = default;
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    if (write_end >= 0) close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  absl::Status Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "opening", "a pipe");
    read_end = ends[0];
    write_end = ends[1];
    return absl::OkStatus();
  }
};

std::vector<std::string> MergeEnvironment(const std::vector<std::string>& changes) {
  std::map<std::string, std::string> merged;
  const auto put = [&](const std::string& entry) {
    merged[entry.substr(0, entry.find('='))] = entry;
  };
  for (char** entry = environ; *entry != nullptr; ++entry) put(*entry);
  for (const std::string& entry : changes) put(entry);
  std::vector<std::string> environment;
  for (auto& [name, entry] : merged) environment.push_back(std::move(entry));
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything the child needs, made before the fork: after it only async-signal-safe calls are
// allowed, because other threads may have held any lock.
struct ExecArguments {
  char** arguments;
  char** environment;
  int standard[3];
  int failure;  // gets errno when the program cannot be executed
  int parent;
};

[[noreturn]] void RunChild(const ExecArguments& exec) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != exec.parent) _exit(127);  // it died before the line above
  for (int i = 0; i < 3; ++i) dup2(exec.standard[i], i);
  close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execve(exec.arguments[0], exec.arguments, exec.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(exec.failure, &error, sizeof(error));
  _exit(127);
}

void CloseAt(int* fd) {
  if (*fd >= 0) close(std::exchange(*fd, -1));
}

}  // namespace

StopFlag::StopFlag() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(fd_ >= 0); }
StopFlag::~StopFlag() { close(fd_); }
void StopFlag::Set() {
  set_ = true;
  CHECK(eventfd_write(fd_, 1) == 0);
}

absl::StatusOr<std::unique_ptr<Child>> Child::Spawn(const Options& options) {
  CHECK(!options.arguments.empty());
  Pipe in, out, error_out, failure;
  for (Pipe* pipe : {&in, &out, &error_out, &failure}) RETURN_IF_ERROR(pipe->Open());
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = MergeEnvironment(options.environment);
  std::vector<char*> argument_pointers = Pointers(arguments);
  std::vector<char*> environment_pointers = Pointers(environment);
  const ExecArguments exec = {.arguments = argument_pointers.data(),
                              .environment = environment_pointers.data(),
                              .standard = {in.read_end, out.write_end, error_out.write_end},
                              .failure = failure.write_end,
                              .parent = getpid()};
  const int pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "starting", arguments[0]);
  if (pid == 0) RunChild(exec);
  setpgid(pid, pid);  // whoever comes first; later it fails, harmlessly
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  CHECK(pidfd >= 0);
  CloseAt(&failure.write_end);
  int error = 0;
  ssize_t got;
  do {
    got = read(failure.read_end, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  const int pipes[3] = {std::exchange(in.write_end, -1), std::exchange(out.read_end, -1),
                        std::exchange(error_out.read_end, -1)};
  std::unique_ptr<Child> child(new Child(pid, pidfd, pipes));
  if (got > 0) return ErrnoStatus(error, "executing", arguments[0]);
  return child;
}

Child::Child(int pid, int pidfd, const int (&pipes)[3])
    : pid_(pid), pidfd_(pidfd), pipes_{pipes[0], pipes[1], pipes[2]} {
  for (int pipe : pipes_) fcntl(pipe, F_SETFL, O_NONBLOCK);
}

Child::~Child() {
  if (!stuck_) KillAndReapGroup(SIGKILL, kDeathTime);
  for (int& pipe : pipes_) CloseAt(&pipe);
  close(pidfd_);
}

// The leader stays unreaped until KillAndReapGroup, so its number cannot name another group.
void Child::Signal(int signal) const {
  if (!reaped_) kill(-pid_, signal);
}

// This process adopts orphans (PR_SET_CHILD_SUBREAPER), so children of the child are reaped here
// too. The number of a leader that was reaped is not used again while its group has members.
bool Child::TryReap() {
  if (reaped_) return true;
  siginfo_t info{};
  if (!leader_reaped_ &&
      (waitid(P_PIDFD, static_cast<id_t>(pidfd_), &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
       info.si_pid == 0)) {
    return false;
  }
  while (true) {
    int status = 0;
    const int process = waitpid(-pid_, &status, WNOHANG);
    if (process < 0 && errno == EINTR) continue;
    if (process == 0) return false;
    if (process < 0) break;
    if (process != pid_) continue;
    wait_status_ = status;
    leader_reaped_ = true;
  }
  reaped_ = true;
  return true;
}

bool Child::KillAndReapGroup(int signal, absl::Duration time_limit) {
  constexpr int kLookMs = 5;
  Signal(signal);
  for (int64_t looks = absl::ToInt64Milliseconds(time_limit) / kLookMs; !TryReap(); --looks) {
    if (looks <= 0) return false;
    pollfd leader = {pidfd_, POLLIN, 0};
    const bool leader_gone = poll(&leader, 1, kLookMs) > 0;
    if (leader_gone && !TryReap()) poll(nullptr, 0, kLookMs);
  }
  return true;
}

// One pass of Watch: what to wait for, and what to do with it.
class Child::Watcher {
 public:
  Watcher(Child* child, const WatchOptions& options)
      : child_(child), options_(options), input_(options.input) {
    kill_at_ = options.clock->Monotonic() + options.time_limit;
    if (input_.empty()) CloseAt(&child_->pipes_[0]);
  }

  Exit Run() {
    while (!exited_ && !child_->stuck_) {
      pollfd polled[6] = {{child_->pipes_[0], POLLOUT, 0},
                          {child_->pipes_[1], POLLIN, 0},
                          {child_->pipes_[2], POLLIN, 0},
                          {child_->pidfd_, POLLIN, 0},
                          {stopping_ ? -1 : FlagOf(options_.stop), POLLIN, 0},
                          {killed_ ? -1 : FlagOf(options_.kill), POLLIN, 0}};
      poll(polled, 6, TimeoutMs());
      if (polled[0].revents != 0) Feed();
      if (polled[1].revents != 0) Drain(1, kReadsAtOnce);
      if (polled[2].revents != 0) Drain(2, kReadsAtOnce);
      if (polled[3].revents != 0) exited_ = true;
      if (polled[4].revents != 0) BeginStop();
      if (polled[5].revents != 0) Kill();
      if (options_.clock->Monotonic() >= kill_at_) {
        if (killed_) {
          child_->stuck_ = true;
        } else {
          timed_out_ = !stopping_;
          Kill();
        }
      }
    }
    if (!child_->stuck_) {
      child_->stuck_ = !child_->KillAndReapGroup(options_.kill_signal, options_.death_time);
    }
    // Nobody writes any more; a pipe holds at most its capacity (1 MiB by default limit of Linux).
    Drain(1, kReadsAtEnd);
    Drain(2, kReadsAtEnd);
    return {.wait_status = child_->wait_status_, .timed_out = timed_out_, .stuck = child_->stuck_};
  }

 private:
  static constexpr int kReadsAtOnce = 4;
  static constexpr int kReadsAtEnd = 64;

  static int FlagOf(const StopFlag* flag) { return flag == nullptr ? -1 : flag->fd(); }

  int TimeoutMs() const {
    const absl::Duration left = kill_at_ - options_.clock->Monotonic();
    if (left == absl::InfiniteDuration()) return -1;
    return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0, 60 * 1000));
  }

  void BeginStop() {
    stopping_ = true;
    child_->Signal(SIGTERM);
    kill_at_ = std::min(kill_at_, options_.clock->Monotonic() + options_.stop_grace);
  }

  void Kill() {
    killed_ = true;
    child_->Signal(options_.kill_signal);
    kill_at_ = options_.clock->Monotonic() + options_.death_time;
  }

  void Feed() {
    const ssize_t written = write(child_->pipes_[0], input_.data(), input_.size());
    if (written > 0) input_.remove_prefix(static_cast<size_t>(written));
    const bool failed = written < 0 && errno != EAGAIN && errno != EINTR;
    if (failed || input_.empty()) CloseAt(&child_->pipes_[0]);
  }

  void Drain(int index, int reads) {
    char buffer[16384];
    for (int i = 0; i < reads && child_->pipes_[index] >= 0; ++i) {
      const ssize_t got = read(child_->pipes_[index], buffer, sizeof(buffer));
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) return CloseAt(&child_->pipes_[index]);
      (index == 1 ? options_.on_output
                  : options_.on_error_output)({buffer, static_cast<size_t>(got)});
    }
  }

  Child* const child_;
  const WatchOptions& options_;
  absl::string_view input_;
  absl::Duration kill_at_;
  bool stopping_ = false;
  bool killed_ = false;
  bool timed_out_ = false;
  bool exited_ = false;
};

Child::Exit Child::Watch(const WatchOptions& options) { return Watcher(this, options).Run(); }

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = sigabbrev_np(signal);
    return absl::StrCat("killed by signal ", signal,
                        name != nullptr ? absl::StrCat(" (SIG", name, ")") : "");
  }
  return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

absl::StatusOr<std::string> RunProgram(const ProgramOptions& options) {
  const std::string& program = options.arguments.at(0);
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> child,
                   Child::Spawn({options.arguments, options.environment}));
  std::string output;
  bool overflow = false;
  LineCutter errors;
  std::string last_error_line;
  const auto keep_last = [&](std::vector<std::string> lines) {
    if (!lines.empty()) last_error_line = std::move(lines.back());
  };
  const Child::Exit exit = child->Watch(
      {.input = options.input,
       .on_output =
           [&](absl::string_view bytes) {
             overflow |=
                 output.size() + bytes.size() > static_cast<size_t>(options.output_limit_bytes);
             if (!overflow) output.append(bytes.data(), bytes.size());
           },
       .on_error_output = [&](absl::string_view bytes) { keep_last(errors.Add(bytes)); },
       .stop = options.stop,
       .stop_grace = absl::ZeroDuration(),
       .kill = nullptr,
       .time_limit = options.time_limit,
       .clock = options.clock});
  keep_last(errors.Flush());
  if (exit.timed_out) {
    return absl::DeadlineExceededError(absl::StrCat(program, " took longer than ",
                                                    absl::FormatDuration(options.time_limit),
                                                    " and was killed"));
  }
  if (exit.wait_status != 0) {
    return absl::InternalError(absl::StrCat(program, ": ", DescribeExit(exit.wait_status),
                                            last_error_line.empty() ? "" : ": ", last_error_line));
  }
  if (overflow) {
    return absl::ResourceExhaustedError(absl::StrCat(program, " wrote more than the limit of ",
                                                     options.output_limit_bytes, " bytes"));
  }
  return output;
}

}  // namespace octavo::agent
