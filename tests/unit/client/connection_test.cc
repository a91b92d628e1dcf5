#include "client/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/client/client_run.h"

namespace octavo::client {
namespace {

using testing::HasSubstr;

class ChooseServerTest : public testing::Test {
 protected:
  void SetUp() override { variables_["XDG_CONFIG_HOME"] = folder_.path(); }

  void WriteConfig(const std::string& text) { folder_.Write("octavo/config.yaml", text); }

  absl::StatusOr<std::string> Choose(const std::string& flag) {
    return ChooseServer(flag, [this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    });
  }

  std::map<std::string, std::string> variables_;
  testing_support::TemporaryFolder folder_;
};

TEST_F(ChooseServerTest, TheNearestSourceWins) {
  EXPECT_EQ(*Choose(""), "127.0.0.1:7070");
  WriteConfig("server: file:1\n");
  EXPECT_EQ(*Choose(""), "file:1");
  variables_["OCTAVO_SERVER"] = "variable:2";
  EXPECT_EQ(*Choose(""), "variable:2");
  EXPECT_EQ(*Choose("flag:3"), "flag:3");
}

TEST_F(ChooseServerTest, TheHomeFolderIsUsedWithoutXdg) {
  variables_.erase("XDG_CONFIG_HOME");
  variables_["HOME"] = folder_.path();
  folder_.Write(".config/octavo/config.yaml", "server: home:1\n");
  EXPECT_EQ(*Choose(""), "home:1");
}

TEST_F(ChooseServerTest, AWrongFileIsNamedWithItsKey) {
  WriteConfig("serve: file:1\n");
  EXPECT_THAT(Choose("").status().message(), HasSubstr("/octavo/config.yaml"));
  EXPECT_THAT(Choose("").status().message(), HasSubstr("\"serve\""));
  WriteConfig("- 1\n");
  EXPECT_FALSE(Choose("").ok());
  WriteConfig("server: [1\n");
  EXPECT_FALSE(Choose("").ok());
  WriteConfig("");
  EXPECT_EQ(*Choose(""), "127.0.0.1:7070");
}

// A socket of the loopback interface that accepts connections by the kernel alone and says nothing.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentServer() { close(socket_); }
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

ClientRun Ask(const std::string& server) {
  Environment environment = BareEnvironment();
  environment.connect = Connect;
  return RunOctavo(environment, {"jobs", "--server", server});
}

TEST(Connect, AClosedPortIsReportedAtOnce) {
  std::string address;
  { address = SilentServer().address(); }
  const absl::Time start = absl::Now();
  const ClientRun run = Ask(address);
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_EQ(run.code, ExitCode::kUnreachable);
  EXPECT_THAT(run.error, HasSubstr(address));
  EXPECT_THAT(run.error, HasSubstr("--server"));
}

TEST(Connect, AServerThatSaysNothingIsReportedWithin5Seconds) {
  const SilentServer server;
  const absl::Time start = absl::Now();
  const ClientRun run = Ask(server.address());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(run.code, ExitCode::kUnreachable);
  EXPECT_THAT(run.error, HasSubstr(server.address()));
}

TEST(Connect, ALiveCoordinatorAnswers) {
  FakeCoordinator coordinator;
  const ClientRun run = Ask(coordinator.address());
  EXPECT_EQ(run.code, ExitCode::kOk) << run.error;
  EXPECT_EQ(run.out, "no jobs\n");
}

}  // namespace
}  // namespace octavo::client
