// Command lines that are wrong before anything is asked of a coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/client_run.h"

namespace octavo::client {
namespace {

using ::testing::HasSubstr;

TEST(Usage, NamesWhatStandsInPlaceOfAVerb) {
  const ClientRun verb = RunOctavo(BareEnvironment(), {"trian"});
  EXPECT_EQ(verb.code, ExitCode::kUsage);
  EXPECT_THAT(verb.error, HasSubstr("\"trian\" is not a verb"));
  const ClientRun option = RunOctavo(BareEnvironment(), {"--nope"});
  EXPECT_EQ(option.code, ExitCode::kUsage);
  EXPECT_THAT(option.error, HasSubstr("\"--nope\" is not an option"));
}

TEST(Usage, RefusesAServerThatIsNoHostAndPortAndSaysWhereItCameFrom) {
  for (const char* server : {"somewhere", "127.0.0.1:99999", "127.0.0.1:-1", "host:http"}) {
    const ClientRun run = RunOctavo(BareEnvironment(), {"--server", server, "jobs"});
    EXPECT_EQ(run.code, ExitCode::kUsage) << server;
    EXPECT_THAT(run.error, HasSubstr("--server")) << server;
    EXPECT_THAT(run.error, HasSubstr(server));
    EXPECT_THAT(run.error, HasSubstr("HOST:PORT"));
  }
}

}  // namespace
}  // namespace octavo::client
