// A program under test: killed and reaped whatever becomes of the test.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/eventually.h"

namespace octavo::endtoend {

using testing_support::Eventually;

class Process {
 public:
  struct Options {
    std::vector<std::string> arguments;  // the first is the program's path
    std::string log;                     // file that gets its standard output and error
    int64_t file_bytes = 0;              // RLIMIT_FSIZE of it and its children; 0: none
  };
  explicit Process(const Options& options);
  ~Process();  // SIGKILL, if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int id() const { return id_; }
  void Signal(int signal) const;
  // SIGKILL; returns when it is gone.
  void Kill();
  // Its wait status once it has ended by itself, or -1 after `time_limit`.
  int AwaitExit(absl::Duration time_limit);
  bool running();

 private:
  int id_;
  bool reaped_ = false;
  int status_ = -1;
};

// Processes whose command line has `program` as its file name and holds `word`.
std::vector<int> FindProcesses(const std::string& program, const std::string& word);

}  // namespace octavo::endtoend
