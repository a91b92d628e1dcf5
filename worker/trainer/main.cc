// octavo-trainer: one attempt of one job, started by octavo-worker.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>
#include <iterator>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/log.h"
#include "worker/trainer/devices.h"
#include "worker/trainer/inspect.h"
#include "worker/trainer/run.h"

namespace {

constexpr int kExitAgentLost = 75;           // EX_TEMPFAIL of sysexits.h
constexpr int kExitStopped = 128 + SIGTERM;  // as a shell reports it
constexpr absl::Duration kPatience = absl::Seconds(30);

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // it is set by a signal handler

void HandleSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A write beyond a file size limit answers EFBIG, a reader that left EPIPE: errors, not signals.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

int RunAttempt(const std::string& agent, octavo::trainer::RunOptions options) {
  HandleSignals();
  octavo::trainer::AgentLink link(agent, kPatience);
  auto assignment = link.Begin();
  if (!assignment.ok()) {
    octavo::LogError(assignment.status().message());
    return kExitAgentLost;
  }
  const octavo::SystemClock clock;
  options.clock = &clock;
  options.stop = &stop;
  options.out = &std::cout;
  octavo::trainer::Run run(*std::move(assignment), &link, std::move(options));
  using End = octavo::trainer::Run::End;
  switch (run.Execute()) {
    case End::kReported:
      return 0;
    case End::kStopped:
      return kExitStopped;
    case End::kAgentLost:
      return kExitAgentLost;
  }
  return kExitAgentLost;
}

// A serialised JobSpec on standard input; a serialised ValidateJobResponse on standard output.
int InspectStandardInput() {
  octavo::v1::JobSpec spec;
  if (!spec.ParseFromIstream(&std::cin)) {
    octavo::LogError("standard input is not a serialised octavo.v1.JobSpec");
    return 2;
  }
  const octavo::v1::ValidateJobResponse response = octavo::trainer::InspectJob(std::move(spec));
  return response.SerializeToOstream(&std::cout) && std::cout.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs one attempt of an Octavo job. Started by octavo-worker, not by hand.",
               "octavo-trainer");
  std::string agent;
  octavo::trainer::RunOptions options;
  bool describe_devices = false;
  bool inspect = false;
  app.add_option("--agent", agent, "address of the agent, e.g. unix:/run/octavo/a.sock");
  app.add_option("--memory-bytes", options.memory_bytes, "memory of the device; 0: all of it");
  app.add_option("--threads", options.threads, "threads of the CPU backend; 0: one per core");
  app.add_flag("--describe-devices", describe_devices, "print the usable devices as JSON");
  app.add_flag("--inspect", inspect, "check a serialised JobSpec on standard input");
  app.set_version_flag("--version", "octavo-trainer " OCTAVO_VERSION);
  int exit_code = 0;
  if (!octavo::ParseCommandLine(&app, argc, argv, &exit_code)) return exit_code;
  if (describe_devices) {
    std::cout << octavo::trainer::DescribeDevices();
    return 0;
  }
  if (inspect) return InspectStandardInput();
  if (!agent.empty()) return RunAttempt(agent, std::move(options));
  std::cerr << "octavo-trainer: write --agent=ADDRESS, --inspect or --describe-devices\n";
  return octavo::kExitUsage;
}
