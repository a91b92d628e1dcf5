#include "base/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() : app_("Does nothing.", "program") {
    app_.add_option("--count", count_);
    app_.set_config("--config");
    app_.allow_config_extras(CLI::config_extras_mode::error);
  }
  bool Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "/some/where/program");
    return ParseCommandLine(&app_, static_cast<int>(arguments.size()), arguments.data(),
                            &exit_code_);
  }
  CLI::App app_;
  int count_ = 0;
  int exit_code_ = -1;
};

TEST_F(CommandLineTest, GoesOnWithWhatIsRight) {
  EXPECT_TRUE(Parse({"--count", "3"}));
  EXPECT_EQ(count_, 3);
}

TEST_F(CommandLineTest, NamesTheProgramAndTheWrongArgumentAndExitsWithTwo) {
  CaptureStderr();
  EXPECT_FALSE(Parse({"--cuont", "3"}));
  EXPECT_THAT(GetCapturedStderr(), ::testing::AllOf(HasSubstr("program: "), HasSubstr("--cuont"),
                                                    HasSubstr("Try program --help.")));
  EXPECT_EQ(exit_code_, 2);
}

TEST_F(CommandLineTest, NamesAWrongKeyOfTheConfigurationFile) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder.path() + "/program.conf";
  std::ofstream(path) << "cuont=3\n";
  CaptureStderr();
  EXPECT_FALSE(Parse({"--config", path.c_str()}));
  EXPECT_THAT(GetCapturedStderr(),
              HasSubstr("configuration file: \"cuont\" is not the name of a flag"));
  EXPECT_EQ(exit_code_, 2);
}

TEST_F(CommandLineTest, ExitsWithZeroAfterHelp) {
  CaptureStdout();
  EXPECT_FALSE(Parse({"--help"}));
  EXPECT_THAT(GetCapturedStdout(), HasSubstr("Does nothing."));
  EXPECT_EQ(exit_code_, 0);
}

}  // namespace
}  // namespace octavo
