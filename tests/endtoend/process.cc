#include "tests/endtoend/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace octavo::endtoend {
namespace {

[[noreturn]] void RunChild(const Process::Options& options, int parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // an aborted test leaves nothing behind either
  if (getppid() != parent) _exit(127);
  const int log = open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  if (options.file_bytes > 0) {
    const rlimit limit = {static_cast<rlim_t>(options.file_bytes),
                          static_cast<rlim_t>(options.file_bytes)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  // Processes of several tests share few cores: spinning would starve all of them.
  setenv("OMP_WAIT_POLICY", "passive", 1);
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

Process::Process(const Options& options) {
  const int parent = getpid();
  id_ = fork();
  if (id_ == 0) RunChild(options, parent);
}

Process::~Process() { Kill(); }

void Process::Signal(int signal) const {
  if (!reaped_) kill(id_, signal);
}

void Process::Kill() {
  Signal(SIGKILL);
  if (!reaped_) reaped_ = waitpid(id_, &status_, 0) == id_;
}

bool Process::running() {
  if (!reaped_) reaped_ = waitpid(id_, &status_, WNOHANG) == id_;
  return !reaped_;
}

int Process::AwaitExit(absl::Duration time_limit) {
  Eventually(time_limit, [this] { return !running(); });
  return status_;
}

std::vector<int> FindProcesses(const std::string& program, const std::string& word) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    int id = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &id)) continue;
    const auto line = ReadFile(entry.path().string() + "/cmdline", 1 << 20);  // empty of a zombie
    if (!line.ok() || !absl::StrContains(*line, word)) continue;
    const std::string first = line->substr(0, line->find('\0'));
    if (std::filesystem::path(first).filename() == program) found.push_back(id);
  }
  return found;
}

}  // namespace octavo::endtoend
