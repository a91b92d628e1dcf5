#include "client/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <yaml-cpp/yaml.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/file.h"
#include "base/status.h"

namespace octavo::client {
namespace {

constexpr int64_t kMaxConfigBytes = 64 << 10;

std::string ConfigPath(const GetEnv& get_env) {
  if (const char* folder = get_env("XDG_CONFIG_HOME"); folder != nullptr && folder[0] == '/') {
    return absl::StrCat(folder, "/octavo/config.yaml");
  }
  const char* home = get_env("HOME");
  return home == nullptr ? "" : absl::StrCat(home, "/.config/octavo/config.yaml");
}

// Empty when the file does not name one.
absl::StatusOr<std::string> ParseConfig(const std::string& text) {
  try {
    const YAML::Node config = YAML::Load(text);
    if (config.IsNull()) return "";
    if (!config.IsMap()) return absl::InvalidArgumentError("write `server: HOST:PORT`");
    std::string server;
    for (const auto& entry : config) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (key != "server" || !entry.second.IsScalar()) {
        return absl::InvalidArgumentError(
            absl::StrCat("key \"", key, "\" is unknown; write only `server: HOST:PORT`"));
      }
      server = entry.second.Scalar();
    }
    return server;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::StatusOr<std::string> CheckAddress(absl::string_view source, std::string server) {
  if (IsAddress(server)) return server;
  return absl::InvalidArgumentError(absl::StrCat(
      source, ": \"", server, "\" is no address; write HOST:PORT, e.g. ", kDefaultServer));
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // A coordinator that comes back is found soon: the default backs off to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A coordinator's machine that vanished is noticed while a stream is silent. The server allows
  // one ping per 10 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

absl::StatusOr<std::string> ChooseServer(const std::string& flag, const GetEnv& get_env) {
  if (!flag.empty()) return CheckAddress("--server", flag);
  if (const char* server = get_env("OCTAVO_SERVER"); server != nullptr && server[0] != '\0') {
    return CheckAddress("OCTAVO_SERVER", server);
  }
  const std::string path = ConfigPath(get_env);
  if (path.empty()) return kDefaultServer;
  const auto text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return kDefaultServer;
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  const auto server = ParseConfig(*text);
  if (!server.ok()) return Annotate(server.status(), path);
  return server->empty() ? kDefaultServer : CheckAddress(absl::StrCat(path, ": server"), *server);
}

absl::Status Unreachable(const std::string& server, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("the coordinator at ", server, " does not answer (", why,
                   "); start octavod there, or name another one by --server or OCTAVO_SERVER"));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& server) {
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), Arguments());
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoSeconds(kConnectTimeout);
  grpc_connectivity_state state = channel->GetState(true);
  while (state != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return Unreachable(server, "no connection: refused, or no such host");
    }
    if (state == GRPC_CHANNEL_SHUTDOWN || !channel->WaitForStateChange(state, deadline)) {
      return Unreachable(server,
                         absl::StrCat("nothing within ", absl::FormatDuration(kConnectTimeout)));
    }
    state = channel->GetState(true);
  }
  return channel;
}

}  // namespace octavo::client
