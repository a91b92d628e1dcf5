// Which coordinator, and the way to it.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace octavo::client {

inline constexpr char kDefaultServer[] = "127.0.0.1:7070";
// A coordinator that cannot be reached is reported within this.
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(4);

// Null for a variable that is not set.
using GetEnv = std::function<const char*(const char* name)>;

// Host and port: `flag` if not empty, else OCTAVO_SERVER, else `server:` in the configuration file
// $XDG_CONFIG_HOME/octavo/config.yaml or ~/.config/octavo/config.yaml, else the default.
// INVALID_ARGUMENT for a configuration file that is wrong, or what is not a host and port.
absl::StatusOr<std::string> ChooseServer(const std::string& flag, const GetEnv& get_env);

// A channel that is connected. UNAVAILABLE at the first failed try, or after kConnectTimeout
// without an answer.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& server);

// What to tell whoever reached nobody at `server`.
absl::Status Unreachable(const std::string& server, absl::string_view why);

}  // namespace octavo::client
