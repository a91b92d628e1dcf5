#include "server/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace octavo::config {
namespace {

using testing::HasSubstr;
using testing_support::TemporaryFolder;

ParsedArguments Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "octavod");
  return ParseArguments(static_cast<int>(arguments.size()), arguments.data(), "9.9");
}

class ConfigTest : public testing::Test {
 protected:
  // Parses a configuration file with this text, with more flags after it.
  ParsedArguments ParseFile(const std::string& text, std::vector<const char*> arguments = {}) {
    const std::string path = folder_.path() + "/octavod.yaml";
    std::ofstream(path) << text;
    arguments.push_back("--config");
    arguments.push_back(path.c_str());
    return Parse(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(ConfigTest, TakesFlags) {
  const auto parsed =
      Parse({"--data-dir", "/d", "--lease", "10s", "--queue-limit", "7", "--listen", "0.0.0.0:1"});
  ASSERT_TRUE(parsed.run) << parsed.output;
  EXPECT_EQ(parsed.config.coordinator.data_dir, "/d");
  EXPECT_EQ(parsed.config.coordinator.loop.core.lease, absl::Seconds(10));
  EXPECT_EQ(parsed.config.coordinator.loop.queue_limit, 7);
  EXPECT_EQ(parsed.config.coordinator.listen, "0.0.0.0:1");
  EXPECT_EQ(parsed.config.metrics_listen, "127.0.0.1:7071") << "the default";
}

TEST_F(ConfigTest, TakesTheSameNamesFromAFileAndLetsFlagsWin) {
  const auto parsed =
      ParseFile("data-dir: /from-file\nlease: 9s\nmax-pending-jobs: 5\n", {"--lease", "12s"});
  ASSERT_TRUE(parsed.run) << parsed.output;
  EXPECT_EQ(parsed.config.coordinator.data_dir, "/from-file");
  EXPECT_EQ(parsed.config.coordinator.loop.core.lease, absl::Seconds(12));
  EXPECT_EQ(parsed.config.coordinator.loop.core.max_pending_jobs, 5);
}

TEST_F(ConfigTest, PrintsAFileThatItReadsBackTheSame) {
  const std::string printed =
      Parse({"--data-dir", "/d", "--lease", "10s", "--print-config"}).output;
  const auto parsed = ParseFile(printed);
  ASSERT_TRUE(parsed.run) << parsed.output;
  EXPECT_EQ(ParseFile(printed, {"--print-config"}).output, printed);
}

TEST_F(ConfigTest, RefusesWhatIsWrongWithCode2AndNamesIt) {
  const std::vector<std::pair<ParsedArguments, std::string>> cases = {
      {Parse({}), "--data-dir"},
      {Parse({"--data-dir", "/d", "--bogus"}), "--bogus"},
      {Parse({"--data-dir", "/d", "--lease", "15"}), "--lease"},
      {Parse({"--data-dir", "/d", "--lease", "-1s"}), "--lease"},
      {Parse({"--data-dir", "/d", "--queue-limit", "0"}), "queue-limit"},
      {Parse({"--data-dir", "/d", "--lease", "2s"}), "--lease-margin"},
      {Parse({"--data-dir", "/d", "--listen", "7070"}), "host:port"},
      {Parse({"--data-dir", "/d", "--metrics-listen", "a:99999"}), "host:port"},
      {Parse({"--data-dir", "/d", "--log-level", "loud"}), "--log-level"},
      {Parse({"--data-dir", "/d", "--lease", "5m"}), "too short for this --lease"},
      {ParseFile("data-dir: /d\nleese: 1s\n"), "leese"},
      {ParseFile("data-dir: [1, 2]\n"), "flag: value"},
      {ParseFile("- a\n"), "map"},
      {ParseFile("a: b: c: [\n"), "configuration file"},
      {Parse({"--data-dir", "/d", "--config", "/no/such/file"}), "/no/such/file"},
  };
  for (const auto& [parsed, name] : cases) {
    EXPECT_FALSE(parsed.run) << name;
    EXPECT_EQ(parsed.exit_code, 2) << name;
    EXPECT_THAT(parsed.output, HasSubstr(name));
  }
}

TEST_F(ConfigTest, AnswersHelpAndVersion) {
  EXPECT_EQ(Parse({"--version"}).output, "octavod 9.9\n");
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_THAT(Parse({"--help"}).output, HasSubstr("--metrics-listen"));
}

}  // namespace
}  // namespace octavo::config
