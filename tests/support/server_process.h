// octavod as a process of its own, for what only a process can show: being killed, its exit code, a
// full disk.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tests/support/server_coordinator.h"

namespace octavo::testing_support {

class OctavodProcess {
 public:
  // Starts it on free ports, with these flags after ours.
  explicit OctavodProcess(const std::string& data_dir, const std::vector<std::string>& flags = {})
      : data_dir_(data_dir) {
    std::vector<std::string> arguments = {OCTAVO_BINARY_DIR "/bin/octavod",
                                          "--data-dir",
                                          data_dir,
                                          "--listen",
                                          "127.0.0.1:0",
                                          "--metrics-listen",
                                          ""};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int output[2];
    CHECK(pipe2(output, O_CLOEXEC) == 0);
    process_ = fork();
    CHECK(process_ >= 0);
    if (process_ == 0) {
      dup2(output[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(output[1]);
    output_ = output[0];
  }
  ~OctavodProcess() {
    if (process_ > 0) Kill();
    close(output_);
  }
  OctavodProcess(const OctavodProcess&) = delete;
  OctavodProcess& operator=(const OctavodProcess&) = delete;

  // Waits until it listens; false when it ended instead.
  bool AwaitListening() {
    if (!AwaitLine("listens on")) return false;
    std::ifstream file(data_dir_ + "/addresses.json");
    const std::string address = nlohmann::json::parse(file).at("grpc");
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    stubs = std::make_unique<Stubs>(channel_);
    return true;
  }

  void Kill() {
    kill(process_, SIGKILL);
    AwaitExit();
  }
  void Terminate() { kill(process_, SIGTERM); }
  // Its exit code; -signal when a signal ended it.
  int AwaitExit() {
    int status = 0;
    CHECK(waitpid(process_, &status, 0) == process_);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // No file of it may grow beyond so many bytes: writes fail as on a full disk.
  void LimitFileSize(rlim_t bytes) {
    const rlimit limit = {bytes, RLIM_INFINITY};
    CHECK(prlimit(process_, RLIMIT_FSIZE, &limit, nullptr) == 0);
  }
  // What it wrote to standard error until its end.
  std::string RemainingOutput() {
    AwaitLine("\n\n");
    return text_;
  }

  std::unique_ptr<Stubs> stubs;

 private:
  bool AwaitLine(const std::string& part) {
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (!absl::StrContains(text_, part)) {
      pollfd readable = {output_, POLLIN, 0};
      if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(limit - absl::Now()))) <= 0)
        return false;
      char buffer[4096];
      const ssize_t got = read(output_, buffer, sizeof(buffer));
      if (got <= 0) return false;
      text_.append(buffer, static_cast<size_t>(got));
    }
    return true;
  }

  const std::string data_dir_;
  pid_t process_ = -1;
  int output_ = -1;
  std::string text_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace octavo::testing_support
