// The test program, which is also the trainer that its tests start.
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "tests/unit/agent/support.h"

int main(int argc, char** argv) {
  if (argc > 1 && absl::StartsWith(argv[1], "--agent=")) {
    return octavo::agent::RunFakeTrainer(std::string(absl::StripPrefix(argv[1], "--agent=")));
  }
  if (argc > 1 && absl::string_view(argv[1]) == "--inspect") return 3;
  signal(SIGPIPE, SIG_IGN);  // as octavo-worker does
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
