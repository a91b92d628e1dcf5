#include "worker/agent/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/numbers.h"
#include "base/file.h"
#include "tests/unit/agent/support.h"

namespace octavo::agent {
namespace {

using ::testing::HasSubstr;

const SystemClock kClock;

ProgramOptions Shell(const std::string& script) {
  return {.arguments = {"/bin/sh", "-c", script},
          .environment = {},
          .input = "",
          .time_limit = absl::Seconds(20),
          .output_limit_bytes = 1 << 20,
          .clock = &kClock};
}

TEST(RunProgram, GivesInputAndTakesOutput) {
  ProgramOptions options = Shell("tr a-z A-Z");
  options.input = std::string(300000, 'x');  // more than a pipe holds
  const auto output = RunProgram(options);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, std::string(300000, 'X'));
}

TEST(RunProgram, AProgramThatDoesNotReadItsInputIsNoFault) {
  ProgramOptions options = Shell("echo fine");
  options.input = std::string(300000, 'x');
  const auto output = RunProgram(options);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, "fine\n");
}

TEST(RunProgram, TheEnvironmentIsPutOverOurs) {
  ProgramOptions options = Shell("echo $OCTAVO_TEST_VARIABLE $HOME");
  options.environment = {"OCTAVO_TEST_VARIABLE=here", "HOME=/nowhere"};
  EXPECT_EQ(RunProgram(options).value_or(""), "here /nowhere\n");
}

TEST(RunProgram, AFailureCarriesExitCodeAndLastErrorLine) {
  const auto output = RunProgram(Shell("echo first >&2; echo 'no such model' >&2; exit 3"));
  EXPECT_THAT(std::string(output.status().message()), HasSubstr("exit code 3: no such model"));
}

TEST(RunProgram, AMissingProgramIsNotFound) {
  ProgramOptions options = Shell("");
  options.arguments = {"/nonexistent/program"};
  EXPECT_EQ(RunProgram(options).status().code(), absl::StatusCode::kNotFound);
}

TEST(RunProgram, TheTimeLimitKillsTheWholeGroup) {
  ProgramOptions options = Shell("sleep 1000 & sleep 1000");
  options.time_limit = absl::Milliseconds(200);
  EXPECT_EQ(RunProgram(options).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(RunProgram, TooMuchOutputIsRefused) {
  ProgramOptions options = Shell("head -c 100000 /dev/zero");
  options.output_limit_bytes = 50000;
  EXPECT_EQ(RunProgram(options).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Child, AProgramThatIgnoresTheRequestIsKilledAfterTheGrace) {
  const auto child = Child::Spawn(
      {.arguments = {"/bin/sh", "-c", "trap '' TERM; echo ready; sleep 1000"}, .environment = {}});
  ASSERT_TRUE(child.ok()) << child.status();
  StopFlag stop;
  const Child::Exit exit = (*child)->Watch({.input = "",
                                            .on_output = [&](absl::string_view) { stop.Set(); },
                                            .on_error_output = [](absl::string_view) {},
                                            .stop = &stop,
                                            .stop_grace = absl::Milliseconds(100),
                                            .kill = nullptr,
                                            .clock = &kClock});
  EXPECT_EQ(DescribeExit(exit.wait_status), "killed by signal 9 (SIGKILL)");
  EXPECT_FALSE(exit.timed_out);
}

TEST(Child, TheKillFlagWaitsForNoGrace) {
  const auto child = Child::Spawn(
      {.arguments = {"/bin/sh", "-c", "trap '' TERM; echo ready; sleep 1000"}, .environment = {}});
  ASSERT_TRUE(child.ok()) << child.status();
  StopFlag stop;
  StopFlag kill;
  const Child::Exit exit = (*child)->Watch({.input = "",
                                            .on_output =
                                                [&](absl::string_view) {
                                                  stop.Set();
                                                  kill.Set();
                                                },
                                            .on_error_output = [](absl::string_view) {},
                                            .stop = &stop,
                                            .stop_grace = absl::Hours(1),
                                            .kill = &kill,
                                            .clock = &kClock});
  EXPECT_EQ(DescribeExit(exit.wait_status), "killed by signal 9 (SIGKILL)");
}

TEST(Child, GrandchildrenInItsGroupEndWithIt) {
  const auto child =
      Child::Spawn({.arguments = {"/bin/sh", "-c", "sleep 1000 & echo $!"}, .environment = {}});
  ASSERT_TRUE(child.ok()) << child.status();
  std::string output;
  (*child)->Watch({.input = "",
                   .on_output = [&](absl::string_view b) { output += std::string(b); },
                   .on_error_output = [](absl::string_view) {},
                   .stop = nullptr,
                   .stop_grace = absl::ZeroDuration(),
                   .kill = nullptr,
                   .clock = &kClock});
  int grandchild = 0;
  ASSERT_TRUE(absl::SimpleAtoi(output, &grandchild)) << output;
  EXPECT_TRUE(Eventually([&] { return !IsAlive(grandchild); }));
}

// A process that starts a child and then does nothing is killed: the kernel must kill the child.
TEST(Child, DiesWithItsParentEvenWhenThatIsKilled) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/child";
  const int parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const auto child =
        Child::Spawn({.arguments = {"/bin/sh", "-c", "sleep 1000"}, .environment = {}});
    if (!child.ok()) _exit(1);
    if (!WriteFileAtomically(file, std::to_string((*child)->pid())).ok()) _exit(1);
    while (true) pause();
  }
  int child = 0;
  EXPECT_TRUE(Eventually([&] {
    const auto text = ReadFile(file, 64);
    return text.ok() && absl::SimpleAtoi(*text, &child);
  }));
  EXPECT_TRUE(IsAlive(child));
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(child); }));
}

TEST(DescribeExit, NamesCodeOrSignal) {
  EXPECT_EQ(DescribeExit(3 << 8), "exit code 3");
  EXPECT_EQ(DescribeExit(SIGSEGV), "killed by signal 11 (SIGSEGV)");
}

TEST(Child, OneThatIsKilledAndDoesNotEndIsNotWaitedForForEver) {
  auto child =
      Child::Spawn({{"/bin/sh", "-c", "trap '' USR1; echo ready; sleep 100; sleep 100"}, {}});
  ASSERT_TRUE(child.ok());
  StopFlag kill_flag;
  const Child::Exit exit =
      (*child)->Watch({.input = "",
                       .on_output = [&](absl::string_view) { kill_flag.Set(); },
                       .on_error_output = [](absl::string_view) {},
                       .stop_grace = absl::ZeroDuration(),
                       .kill = &kill_flag,
                       .kill_signal = SIGUSR1,
                       .death_time = absl::Milliseconds(100),
                       .clock = &kClock});
  EXPECT_TRUE(exit.stuck);
  EXPECT_FALSE((*child)->TryReap());
  kill(-(*child)->pid(), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return (*child)->TryReap(); }));
}

}  // namespace
}  // namespace octavo::agent
