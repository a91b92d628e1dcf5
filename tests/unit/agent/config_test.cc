#include "worker/agent/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/agent/support.h"
#include "worker/agent/devices.h"
#include "worker/agent/yaml_flags.h"

namespace octavo::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WorkFolder, IsPrivateAndBelongsToOneAgent) {
  TemporaryFolder parent;
  const std::string path = parent.path() + "/work";
  {
    const auto folder = WorkFolder::Open(path);
    ASSERT_TRUE(folder.ok()) << folder.status();
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_EQ(WorkFolder::Open(path).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(WorkFolder::Open(path).ok()) << "the lock ends with its holder";
}

TEST(WorkFolder, RemembersTheWorkerId) {
  TemporaryFolder parent;
  const auto folder = WorkFolder::Open(parent.path() + "/work");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->WorkerId("left").value_or(""), "left");
  EXPECT_EQ(folder->WorkerId("").value_or(""), "left");
  EXPECT_EQ(folder->WorkerId("right").value_or(""), "right");
  EXPECT_EQ(folder->WorkerId("").value_or(""), "right");
  EXPECT_EQ(folder->WorkerId("a b").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WorkFolder, SocketPathsStayShortUnderALongFolder) {
  TemporaryFolder parent;
  const auto folder = WorkFolder::Open(parent.path() + "/" + std::string(200, 'x'));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_LE(folder->socket_folder().size() + 40, 107u);
}

constexpr const char* kOneOfEach = R"({"devices": [
  {"kind": "cpu", "index": 0, "name": "a processor", "memory_bytes": 1000},
  {"kind": "gpu", "index": 0, "name": "a card", "memory_bytes": 5000}], "notes": []})";

TEST(OfferedDevices, CpuDevicesShareTheMachineLessAReserve) {
  Config config;
  config.cpu_devices = 2;
  const auto devices = OfferedDevices(kOneOfEach, config, 8000);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 3u);
  EXPECT_EQ((*devices)[0].memory_bytes(), 3500);
  EXPECT_EQ((*devices)[1].index(), 1);
  EXPECT_EQ((*devices)[2].kind(), "gpu");
  EXPECT_EQ((*devices)[2].memory_bytes(), 5000);
}

TEST(OfferedDevices, TheConfiguredMemoryWins) {
  Config config;
  config.memory_bytes = 77;
  EXPECT_EQ(OfferedDevices(kOneOfEach, config, 8000)->at(0).memory_bytes(), 77);
}

TEST(OfferedDevices, AWorkerWithoutDevicesIsRefused) {
  Config config;
  config.cpu_devices = 0;
  const auto devices = OfferedDevices(R"({"devices": [{"kind": "cpu"}]})", config, 8000);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(OfferedDevices, NonsenseIsNoDescription) {
  for (const char* text : {"", "[]", "{}", R"({"devices": 3})", "{"}) {
    EXPECT_EQ(OfferedDevices(text, Config{}, 8000).status().code(), absl::StatusCode::kInternal)
        << text;
  }
}

TEST(ParseYamlFlags, ReadsNamesAndValues) {
  const auto flags = ParseYamlFlags("server: 10.0.0.1:7070\ncpu-devices: 2\n# note\n");
  ASSERT_TRUE(flags.ok()) << flags.status();
  ASSERT_EQ(flags->size(), 2u);
  EXPECT_EQ((*flags)[0].name, "server");
  EXPECT_THAT((*flags)[0].values, ElementsAre("10.0.0.1:7070"));
  EXPECT_THAT((*flags)[1].values, ElementsAre("2"));
}

TEST(ParseYamlFlags, ComplaintsNameTheLine) {
  for (const auto& [text, complaint] :
       {std::pair("a: 1\na: 2\n", "line 2 of the configuration: \"a\" is given twice"),
        std::pair("a: {b: 1}\n", "\"a\" must have one value"), std::pair("- a\n", "name: value"),
        std::pair("a: [1\n", "line ")}) {
    const auto flags = ParseYamlFlags(text);
    EXPECT_EQ(flags.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(flags.status().message()), HasSubstr(complaint));
  }
}

}  // namespace
}  // namespace octavo::agent
