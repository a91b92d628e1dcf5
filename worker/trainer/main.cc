// octavo-trainer: one attempt of one job, started by octavo-worker.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <exception>
#include <iostream>
#include <iterator>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/log.h"
#include "worker/trainer/attempt_run.h"
#include "worker/trainer/devices.h"
#include "worker/trainer/inspect.h"

namespace {

constexpr int kExitAgentLost = 75;           // EX_TEMPFAIL of sysexits.h
constexpr int kExitInternal = 70;            // EX_SOFTWARE
constexpr int kExitStopped = 128 + SIGTERM;  // as a shell reports it
constexpr absl::Duration kPatience = absl::Seconds(30);

octavo::trainer::StopRequest stop;

// clock_gettime is async-signal-safe.
void RequestStop(int) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  stop.Set(now.tv_sec * 1'000'000'000 + now.tv_nsec);
}

void HandleSignals() {
  struct sigaction action {};
  action.sa_handler = RequestStop;
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
  octavo::trainer::AttemptRun run(*std::move(assignment), &link, std::move(options));
  using End = octavo::trainer::AttemptRun::End;
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

int Run(int argc, char** argv) {
  CLI::App app("Runs one attempt of an Octavo job. Started by octavo-worker, not by hand.",
               "octavo-trainer");
  std::string agent;
  octavo::trainer::RunOptions options;
  bool describe_devices = false;
  bool inspect = false;
  app.add_option("--agent", agent, "address of the agent, e.g. unix:/run/octavo/a.sock");
  app.add_option("--memory-bytes", options.memory_bytes, "memory of the device; 0: all of it");
  app.add_option("--threads", options.threads, "threads of the CPU backend; 0: one per core");
  int64_t stop_grace_ms = 0;
  app.add_option("--stop-grace-ms", stop_grace_ms,
                 "from SIGTERM to SIGKILL; a checkpoint is saved where it fits in; 0: never");
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
  options.stop_grace = absl::Milliseconds(stop_grace_ms);
  if (!agent.empty()) return RunAttempt(agent, std::move(options));
  std::cerr << "octavo-trainer: write --agent=ADDRESS, --inspect or --describe-devices\n";
  return octavo::kExitUsage;
}

}  // namespace

// The last net: whatever was thrown becomes one line, and the agent an exit code instead of a core.
int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    octavo::LogError("INTERNAL: ", error.what());
    return kExitInternal;
  }
}
