// octavo: the command line of Octavo. See client/README.md.
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/run_client.h"

namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // it is set by a signal handler

// Takes over Ctrl-C at the first question, so that commands that do not ask are ended by it. A
// second Ctrl-C always ends the process.
bool Interrupted() {
  static const bool taken_over = [] {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    action.sa_flags = SA_RESETHAND;
    return sigaction(SIGINT, &action, nullptr) == 0;
  }();
  return taken_over && interrupted;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a reader that left is an error of the stream
  const octavo::client::Environment environment = {
      .terminal = octavo::client::StandardTerminal(),
      .get_env = [](const char* name) -> const char* { return std::getenv(name); },
      .interrupted = Interrupted,
      .version = OCTAVO_VERSION};
  return static_cast<int>(
      octavo::client::RunClient(std::vector<std::string>(argv + 1, argv + argc), environment));
}
